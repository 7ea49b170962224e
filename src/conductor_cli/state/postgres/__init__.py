"""What is kept between runs, in a PostgreSQL database that several replicas share.

    database  connections, transactions, the version of the tables
    spending  what all replicas spend on each day, held exactly to the limits of a day
    traces    the traces of all replicas, and what lists show of them
    records   the state as a whole, and its smaller records
    upkeep    looking after a database, and moving a state to it and back

psycopg is imported only here, and only where the setting `state` names a database.
"""
