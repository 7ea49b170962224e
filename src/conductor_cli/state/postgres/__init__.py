"""What is kept between runs, in a PostgreSQL database that several replicas share.

    database  connections, transactions, the version of the tables
    spending  what all replicas spend on each day, held exactly to the limits of a day

psycopg is imported only here, and only where the setting `state` names a database.
"""
