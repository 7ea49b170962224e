-- The tables of the state. Each part makes a version of the one before; a version that was released is never changed.

-- version 1: what is spent

CREATE TABLE conductor_calls (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    day date NOT NULL,
    owner text,  -- the process of a call that has not ended, NULL once it has. Such a row is a hold
    released boolean NOT NULL DEFAULT false,  -- somebody has said that this hold counts nothing
    expires_at timestamptz NOT NULL,  -- from then on, it is not known what an open call did
    worker text NOT NULL,
    client text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    worker_call integer NOT NULL,
    failed integer NOT NULL DEFAULT 0,
    calls bigint NOT NULL,
    unpriced bigint NOT NULL,
    tokens_in bigint NOT NULL,
    tokens_out bigint NOT NULL DEFAULT 0,
    cost bigint,  -- billionths of a dollar
    imported text UNIQUE  -- the file and the row of a call that came from a file
);
CREATE INDEX conductor_calls_by_day ON conductor_calls (day);
CREATE INDEX conductor_calls_open ON conductor_calls (expires_at) WHERE owner IS NOT NULL;
CREATE TABLE conductor_totals (
    day date NOT NULL,
    scope text NOT NULL,  -- '' for everybody, 'key:NAME' for a client of a server
    cost bigint NOT NULL DEFAULT 0,  -- of calls that have ended
    tokens bigint NOT NULL DEFAULT 0,
    calls bigint NOT NULL DEFAULT 0,
    held_cost bigint NOT NULL DEFAULT 0,  -- of calls that have not
    held_tokens bigint NOT NULL DEFAULT 0,
    held_calls bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (day, scope)
);

-- version 2: traces, ratings, attachments; one round trip for each hold

-- Whoever makes a call numbers it, and so may say the same again where the answer was lost.
ALTER TABLE conductor_calls ALTER COLUMN id DROP IDENTITY, DROP COLUMN imported;

CREATE TABLE conductor_facts (
    name text PRIMARY KEY,
    value bytea NOT NULL
);

-- The totals of a call, locked in the order of their keys.
CREATE FUNCTION conductor_lock_totals(of_day date, of_client text) RETURNS SETOF conductor_totals LANGUAGE plpgsql AS $$
DECLARE
    scopes CONSTANT text[] := CASE of_client WHEN '' THEN ARRAY[''] ELSE ARRAY['', 'key:' || of_client] END;
    found integer;
BEGIN
    FOR attempt IN 1..2 LOOP
        PERFORM FROM conductor_totals t WHERE t.day = of_day AND t.scope = ANY (scopes)
            ORDER BY t.scope COLLATE "C" FOR UPDATE;
        GET DIAGNOSTICS found = ROW_COUNT;
        EXIT WHEN found = cardinality(scopes);
        INSERT INTO conductor_totals (day, scope) SELECT of_day, unnest(scopes) ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN QUERY SELECT t.* FROM conductor_totals t WHERE t.day = of_day AND t.scope = ANY (scopes)
        ORDER BY t.scope COLLATE "C";
END $$;

-- What is spent and held on a day, tomorrow if somebody was there already.
CREATE FUNCTION conductor_today(
    of_day date, of_client text, OUT day date, OUT cost bigint, OUT tokens bigint, OUT calls bigint, OUT client_cost bigint
) LANGUAGE plpgsql AS $$
DECLARE
    total conductor_totals;
BEGIN
    day := of_day + EXISTS (SELECT FROM conductor_totals t WHERE t.day = of_day + 1)::integer;
    FOR total IN SELECT * FROM conductor_lock_totals(day, of_client) LOOP
        IF total.scope = '' THEN
            cost := total.cost + total.held_cost;
            tokens := total.tokens + total.held_tokens;
            calls := total.calls + total.held_calls;
        END IF;
        client_cost := total.cost + total.held_cost;
    END LOOP;
END $$;

-- A hold under all limits of a call, or none; and what was spent and held without it.
CREATE FUNCTION conductor_reserve(
    new_id bigint, new_owner text, of_day date, seconds float8, new_worker text, new_provider text, new_model text,
    of_client text, new_call integer, new_tokens bigint, new_cost bigint,
    cost_limit bigint, tokens_limit bigint, calls_limit bigint, client_limit bigint,
    OUT held boolean, OUT day date, OUT cost bigint, OUT tokens bigint, OUT calls bigint, OUT client_cost bigint
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT t.* INTO day, cost, tokens, calls, client_cost FROM conductor_today(of_day, of_client) t;
    held := EXISTS (SELECT FROM conductor_calls c WHERE c.id = new_id AND c.owner = new_owner);
    IF held THEN RETURN; END IF;  -- the answer to the first time was lost
    held := (new_call = 0 OR calls_limit IS NULL OR calls < calls_limit)
        AND (tokens_limit IS NULL OR tokens + new_tokens <= tokens_limit)
        AND (new_cost IS NULL OR cost_limit IS NULL OR cost + new_cost <= cost_limit)
        AND (new_cost IS NULL OR client_limit IS NULL OR client_cost + new_cost <= client_limit);
    IF NOT held THEN RETURN; END IF;
    INSERT INTO conductor_calls (id, day, owner, expires_at, worker, provider, model, client, worker_call, calls,
            unpriced, tokens_in, cost)
        VALUES (new_id, day, new_owner, clock_timestamp() + make_interval(secs => seconds), new_worker, new_provider,
            new_model, of_client, new_call, 1, (new_cost IS NULL)::integer, new_tokens, new_cost);
    UPDATE conductor_totals t
        SET held_cost = t.held_cost + COALESCE(new_cost, 0), held_tokens = t.held_tokens + new_tokens,
            held_calls = t.held_calls + new_call
        WHERE t.day = conductor_reserve.day AND t.scope IN ('', CASE of_client WHEN '' THEN '' ELSE 'key:' || of_client END);
END $$;

-- What a call used takes the place of its hold, once. A hold that was released holds nothing.
CREATE FUNCTION conductor_settle(
    of_id bigint, of_owner text, made integer, new_calls bigint, new_unpriced bigint, new_in bigint, new_out bigint,
    new_cost bigint, new_failed integer
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    hold conductor_calls;
BEGIN
    SELECT * INTO hold FROM conductor_calls c WHERE c.id = of_id AND c.owner = of_owner;
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM conductor_lock_totals(hold.day, hold.client);
    SELECT * INTO hold FROM conductor_calls c WHERE c.id = of_id AND c.owner = of_owner FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE conductor_calls c
        SET owner = NULL, released = false, calls = new_calls, unpriced = new_unpriced, tokens_in = new_in,
            tokens_out = new_out, cost = new_cost, failed = new_failed, worker_call = made
        WHERE c.id = of_id;
    UPDATE conductor_totals t
        SET held_cost = t.held_cost - COALESCE(hold.cost, 0), held_tokens = t.held_tokens - hold.tokens_in,
            held_calls = t.held_calls - hold.worker_call, cost = t.cost + COALESCE(new_cost, 0),
            tokens = t.tokens + new_in + new_out, calls = t.calls + made
        WHERE t.day = hold.day AND t.scope IN ('', CASE hold.client WHEN '' THEN '' ELSE 'key:' || hold.client END);
    RETURN true;
END $$;

-- An expired hold counts nothing any more.
CREATE FUNCTION conductor_release(of_id bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    hold conductor_calls;
BEGIN
    SELECT * INTO hold FROM conductor_calls c WHERE c.id = of_id;
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM conductor_lock_totals(hold.day, hold.client);
    SELECT * INTO hold FROM conductor_calls c
        WHERE c.id = of_id AND c.owner IS NOT NULL AND NOT c.released AND c.expires_at < clock_timestamp() FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE conductor_calls c SET released = true, cost = 0, tokens_in = 0, calls = 0, unpriced = 0, worker_call = 0
        WHERE c.id = of_id;
    UPDATE conductor_totals t
        SET held_cost = t.held_cost - COALESCE(hold.cost, 0), held_tokens = t.held_tokens - hold.tokens_in,
            held_calls = t.held_calls - hold.worker_call
        WHERE t.day = hold.day AND t.scope IN ('', CASE hold.client WHEN '' THEN '' ELSE 'key:' || hold.client END);
    RETURN true;
END $$;

-- What a list shows of a run. Its day is that of its id, in UTC.
CREATE TABLE conductor_runs (
    day date NOT NULL,
    run text COLLATE "C" NOT NULL,
    written bigint NOT NULL,  -- nanoseconds since 1970
    size bigint NOT NULL,  -- bytes of the lines
    state text NOT NULL,
    time text NOT NULL,
    workers text NOT NULL,
    cost text NOT NULL,
    unpriced bigint NOT NULL,
    tokens bigint NOT NULL,
    seconds float8 NOT NULL,
    resumed text NOT NULL,
    conductor text NOT NULL,
    problem text NOT NULL,
    recovered text NOT NULL,
    question text NOT NULL,
    subtasks text NOT NULL,
    answers text NOT NULL,
    origin text NOT NULL,
    words text NOT NULL,  -- question, subtasks and answers in lower case
    attachments text[] NOT NULL DEFAULT '{}',  -- the SHA-256 of the files that it names
    PRIMARY KEY (day, run)
) PARTITION BY RANGE (day);
CREATE INDEX conductor_runs_newest ON conductor_runs (day, left(run, 15), written);

-- Searches read every text where the server has no index of three letters (contrib), or its role may not have one made.
DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX conductor_runs_words ON conductor_runs USING gin (words gin_trgm_ops);
EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported THEN NULL;
END $$;

-- The lines of the traces, as a file has them. `start` is the byte at which they begin.
CREATE TABLE conductor_lines (
    day date NOT NULL,
    run text COLLATE "C" NOT NULL,
    start bigint NOT NULL,
    lines bytea NOT NULL,
    PRIMARY KEY (day, run, start)
) PARTITION BY RANGE (day);

-- The runs that are being written, or were when their process was killed.
CREATE TABLE conductor_leases (
    run text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    until timestamptz NOT NULL,
    size bigint NOT NULL,
    written bigint NOT NULL,
    summed bigint NOT NULL DEFAULT 0  -- the size when the row of `conductor_runs` was made of it
);

CREATE FUNCTION conductor_nanoseconds() RETURNS bigint LANGUAGE sql AS
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint';

-- Appends lines to a run that this owner writes; said twice, it is done once. False where somebody else has the run.
CREATE FUNCTION conductor_append(
    of_day date, of_run text, of_owner text, at_byte bigint, new_lines bytea, seconds float8, named text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    end_byte CONSTANT bigint := at_byte + length(new_lines);
BEGIN
    UPDATE conductor_leases l
        SET until = clock_timestamp() + make_interval(secs => seconds), size = end_byte, written = conductor_nanoseconds()
        WHERE l.run = of_run AND l.owner = of_owner AND l.size = at_byte;
    IF NOT FOUND THEN
        RETURN EXISTS (SELECT FROM conductor_leases l WHERE l.run = of_run AND l.owner = of_owner AND l.size = end_byte);
    END IF;
    INSERT INTO conductor_lines VALUES (of_day, of_run, at_byte, new_lines);
    IF named <> '{}' THEN
        UPDATE conductor_runs r SET attachments = r.attachments || named WHERE r.day = of_day AND r.run = of_run;
    END IF;
    RETURN true;
END $$;

-- Makes room for the runs of a day and the next one.
CREATE FUNCTION conductor_add_day(of_day date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    first date;
BEGIN
    PERFORM pg_advisory_xact_lock(7165064744911009537);
    FOREACH parent IN ARRAY ARRAY['conductor_runs', 'conductor_lines'] LOOP
        FOREACH first IN ARRAY ARRAY[of_day, of_day + 1] LOOP
            IF to_regclass(parent || to_char(first, '_YYYYMMDD')) IS NULL THEN
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                    parent || to_char(first, '_YYYYMMDD'), parent, first, first + 1);
            END IF;
        END LOOP;
    END LOOP;
END $$;

CREATE TABLE conductor_ratings (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rating text NOT NULL UNIQUE  -- JSON
);

-- The names of conversations, and the run that each ended with.
CREATE TABLE conductor_names (
    name text PRIMARY KEY,
    run text NOT NULL,
    used timestamptz NOT NULL
);

CREATE TABLE conductor_attachments (
    sha256 text PRIMARY KEY,
    data bytea NOT NULL
);

-- Who is skipped, so that no other replica has to find it out. `key` is a hash.
CREATE TABLE conductor_circuits (
    key text PRIMARY KEY,
    until timestamptz NOT NULL,
    circuit text NOT NULL  -- JSON
);

-- Which run answers a request with an Idempotency-Key. Both texts are hashes.
CREATE TABLE conductor_requests (
    key text PRIMARY KEY,
    request text NOT NULL,
    run text NOT NULL,
    begun timestamptz NOT NULL
);
CREATE INDEX conductor_requests_begun ON conductor_requests (begun);

-- The run that answers a request: the new one where there is none, only an old one, or the one that has failed.
CREATE FUNCTION conductor_claim(
    of_key text, new_request text, new_run text, failed text, seconds float8,
    OUT request text, OUT run text, OUT age float8
) LANGUAGE plpgsql AS $$
DECLARE
    oldest CONSTANT timestamptz := clock_timestamp() - make_interval(secs => seconds);
BEGIN
    DELETE FROM conductor_requests r WHERE r.begun < oldest;
    INSERT INTO conductor_requests AS r VALUES (of_key, new_request, new_run, clock_timestamp())
        ON CONFLICT (key) DO UPDATE SET run = excluded.run, request = excluded.request, begun = excluded.begun
        WHERE r.run = failed;
    SELECT r.request, r.run, extract(epoch FROM clock_timestamp() - r.begun)
        INTO request, run, age FROM conductor_requests r WHERE r.key = of_key;
END $$;

-- version 3: runs that another process goes on with where their own is gone

ALTER TABLE conductor_leases
    ADD COLUMN job text,  -- JSON: what begins the run, or goes on with it; NULL where nobody is to do so
    ADD COLUMN taken integer NOT NULL DEFAULT 0,  -- how often somebody did
    ADD COLUMN unwanted boolean NOT NULL DEFAULT false;  -- its client wants the run to be stopped
CREATE INDEX conductor_leases_jobs ON conductor_leases (until) WHERE job IS NOT NULL;

-- Whether somebody has a run, or is to take it over. One that ends each process ends nine of them.
CREATE FUNCTION conductor_goes_on(l conductor_leases) RETURNS boolean LANGUAGE sql AS
    'SELECT l.until > clock_timestamp()
        OR (l.job IS NOT NULL AND l.taken < 8 AND l.until > clock_timestamp() - interval ''1 day'')';

-- Fails where another process has the run; none takes it before the end of the transaction.
CREATE FUNCTION conductor_fence(of_run text, of_owner text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM conductor_leases l WHERE l.run = of_run AND l.owner = of_owner FOR SHARE;
    IF NOT FOUND THEN RAISE EXCEPTION 'another process has this run'; END IF;
    RETURN true;
END $$;

-- version 4: batches that several machines work on

-- Some questions of a batch, which one process has until it has sent what became of them. `batch` is a hash.
CREATE TABLE conductor_shards (
    batch text NOT NULL,
    shard integer NOT NULL,
    owner text NOT NULL DEFAULT '',
    until timestamptz NOT NULL DEFAULT '-infinity',
    answers bytea,  -- JSON Lines; NULL while questions are open
    failures bytea,
    begun timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (batch, shard)
);
CREATE INDEX conductor_shards_open ON conductor_shards (batch, shard) WHERE answers IS NULL;

-- version 5: files and batches of the clients of servers

-- `record` is JSON. One process works on a batch until `until`: the one whose name is `holder`.
CREATE TABLE conductor_served (
    id text PRIMARY KEY,
    client text NOT NULL,
    record text NOT NULL,
    is_open boolean NOT NULL,
    cancelled boolean NOT NULL DEFAULT false,
    holder text NOT NULL DEFAULT '',
    until timestamptz NOT NULL DEFAULT '-infinity'
);
CREATE INDEX conductor_served_of_client ON conductor_served (client);
CREATE INDEX conductor_served_open ON conductor_served (id) WHERE is_open;
CREATE TABLE conductor_pieces (
    id text NOT NULL,
    number integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (id, number)
);

-- version 6: what machines spend together on a batch

-- A row for each process, in billionths of a dollar. The one with an empty owner has what was spent before the batch
-- was shared, and is the lock of the batch. What a process held that is gone counts in full.
CREATE TABLE conductor_batch_costs (
    batch text NOT NULL,
    owner text NOT NULL,
    turn bigint NOT NULL DEFAULT 0,  -- the number of the statement of the process that wrote the row last
    spent bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0,
    until timestamptz NOT NULL DEFAULT clock_timestamp(),  -- nobody knows whether the process lives any longer
    PRIMARY KEY (batch, owner)
);

CREATE FUNCTION conductor_lock_batch(of_batch text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOOP
        PERFORM FROM conductor_batch_costs c WHERE c.batch = of_batch AND c.owner = '' FOR UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO conductor_batch_costs (batch, owner) VALUES (of_batch, '') ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- At least so much was spent before.
CREATE FUNCTION conductor_begin_batch(of_batch text, at_least bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    total bigint;
BEGIN
    PERFORM conductor_lock_batch(of_batch);
    SELECT SUM(c.spent + c.held) INTO total FROM conductor_batch_costs c WHERE c.batch = of_batch;
    UPDATE conductor_batch_costs c
        SET spent = c.spent + greatest(at_least - total, 0), until = clock_timestamp()
        WHERE c.batch = of_batch AND c.owner = '';
END $$;

-- What a process has spent and holds from now on, where that fits into the limit beside all others. Said twice, it is
-- done once.
CREATE FUNCTION conductor_spend_on_batch(
    of_batch text, of_owner text, new_turn bigint, new_spent bigint, new_held bigint, seconds float8, cost_limit bigint,
    OUT granted boolean, OUT others_spent bigint, OUT others_held bigint
) LANGUAGE plpgsql AS $$
DECLARE
    old_turn bigint;
    at_once CONSTANT timestamptz := clock_timestamp();
BEGIN
    PERFORM conductor_lock_batch(of_batch);
    SELECT SUM(c.spent + CASE WHEN c.until < at_once THEN c.held ELSE 0 END),
            SUM(CASE WHEN c.until < at_once THEN 0 ELSE c.held END)
        INTO others_spent, others_held
        FROM conductor_batch_costs c WHERE c.batch = of_batch AND c.owner <> of_owner;
    SELECT c.turn INTO old_turn FROM conductor_batch_costs c WHERE c.batch = of_batch AND c.owner = of_owner;
    granted := old_turn = new_turn;
    IF old_turn >= new_turn THEN RETURN; END IF;
    granted := cost_limit IS NULL OR others_spent + others_held + new_spent + new_held <= cost_limit;
    IF NOT granted THEN RETURN; END IF;
    INSERT INTO conductor_batch_costs AS c
        VALUES (of_batch, of_owner, new_turn, new_spent, new_held, at_once + make_interval(secs => seconds))
        ON CONFLICT (batch, owner) DO UPDATE
        SET turn = excluded.turn, spent = excluded.spent, held = excluded.held, until = excluded.until;
END $$;

-- version 7: for how long a run did nothing but wait for a person

ALTER TABLE conductor_runs ADD COLUMN waited float8 NOT NULL DEFAULT 0;  -- seconds, part of `seconds`
