-- The truth: rows that people and agents wrote, and what is derived from them at a price (vectors).
-- Text indexes are derived; they are made by code, one FTS5 table a team and layer, at a layer's first row.
--
-- Keys. owner_no = team_no << 18 | user_no; user_no 0 is the range of rows that others beside the owner may see.
-- slot = owner_no << 32 | number: every user, and every team, is one rowid range in tables and indexes. Slots
-- never leave the storage layer; the public key of a row is (team_id, id).
-- Times are integer microseconds since 1970 in UTC. JSON is text. Views with readable times stand at the end.

CREATE TABLE store_meta (
  key   TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE teams (
  team_no    INTEGER PRIMARY KEY CHECK (team_no BETWEEN 1 AND 8191),
  team_id    TEXT    NOT NULL UNIQUE CHECK (team_id <> ''),
  auto_join  INTEGER NOT NULL DEFAULT 1 CHECK (auto_join IN (0, 1)),
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE members (
  team_id   TEXT    NOT NULL REFERENCES teams (team_id),
  user_id   TEXT    NOT NULL CHECK (user_id <> ''),
  role      TEXT    NOT NULL CHECK (role IN ('admin', 'member')),
  joined_at INTEGER NOT NULL,
  left_at   INTEGER,
  PRIMARY KEY (team_id, user_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE owners (
  owner_no     INTEGER PRIMARY KEY,
  team_id      TEXT    NOT NULL REFERENCES teams (team_id),
  user_id      TEXT,                          -- NULL: the team's shared range
  last_number  INTEGER NOT NULL DEFAULT 0,    -- the last slot number given out in this range
  last_arrival INTEGER NOT NULL DEFAULT 0,    -- the last arrival number of this user's rows
  UNIQUE (team_id, user_id)
) STRICT;

CREATE TABLE sessions (
  session_no INTEGER PRIMARY KEY,
  team_id    TEXT    NOT NULL,
  user_id    TEXT    NOT NULL CHECK (user_id <> ''),
  agent_id   TEXT    NOT NULL CHECK (agent_id <> ''),
  task_id    TEXT,
  session    TEXT    NOT NULL,
  channel    TEXT    NOT NULL,
  chat_id    TEXT    NOT NULL,
  title      TEXT    NOT NULL,
  titled_by  TEXT    NOT NULL CHECK (titled_by IN ('default', 'first_message', 'caller')),
  pinned     INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
  hidden     INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),
  last_pos   INTEGER NOT NULL DEFAULT 0,
  last_fork  INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  UNIQUE (team_id, user_id, session)
) STRICT;

CREATE TABLE messages (
  slot         INTEGER PRIMARY KEY,
  arrival      INTEGER NOT NULL,              -- number among the user's rows; pipelines' cursors use only this
  id           TEXT    NOT NULL,
  client_id    TEXT,
  team_id      TEXT    NOT NULL CHECK (team_id <> ''),
  user_id      TEXT    NOT NULL CHECK (user_id <> ''),
  agent_id     TEXT    NOT NULL CHECK (agent_id <> ''),
  task_id      TEXT,
  visibility   TEXT    NOT NULL DEFAULT 'private' CHECK (visibility = 'private'),
  session      TEXT    NOT NULL,
  pos          INTEGER NOT NULL,              -- order inside the session
  branch       INTEGER NOT NULL DEFAULT 0,    -- 0: the current branch; else the fork that set the row aside
  live         INTEGER NOT NULL DEFAULT 1 CHECK (live IN (0, 1)),
  state        TEXT    NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'deleted')),
  hidden       INTEGER NOT NULL DEFAULT 0 CHECK (hidden IN (0, 1)),  -- its session was deleted
  role         TEXT    NOT NULL CHECK (role IN ('system', 'developer', 'user', 'assistant', 'tool')),
  name         TEXT,
  content      TEXT    NOT NULL,              -- JSON: text, an array of blocks, or null
  search_text  TEXT,                          -- the text parts of blocks; NULL where content is plain text
  tool_calls   TEXT,
  tool_call_id TEXT,
  usage        TEXT,
  meta         TEXT,
  complete     INTEGER NOT NULL DEFAULT 1 CHECK (complete IN (0, 1)),
  source_kind  TEXT    NOT NULL,
  trust        INTEGER NOT NULL,
  created_at   INTEGER NOT NULL,
  recorded_at  INTEGER NOT NULL,
  zone         TEXT,
  deleted_at   INTEGER,
  checksum     TEXT    NOT NULL,              -- of role, name, content and tool fields
  UNIQUE (team_id, id),
  UNIQUE (team_id, user_id, session, pos)
) STRICT;
CREATE UNIQUE INDEX messages_client_id ON messages (team_id, user_id, session, client_id) WHERE client_id IS NOT NULL;
CREATE UNIQUE INDEX messages_arrival ON messages (team_id, user_id, arrival);

CREATE TABLE memories (
  team_id         TEXT    NOT NULL,
  id              TEXT    NOT NULL,
  user_id         TEXT    NOT NULL CHECK (user_id <> ''),
  version         INTEGER NOT NULL,           -- the current one
  created_at      INTEGER NOT NULL,
  idempotency_key TEXT,
  namespace       TEXT,                       -- namespace and key: for key-value callers
  key             TEXT,
  PRIMARY KEY (team_id, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX memories_idempotency ON memories (team_id, user_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX memories_key ON memories (team_id, user_id, namespace, key) WHERE key IS NOT NULL;

CREATE TABLE memory_versions (
  slot              INTEGER PRIMARY KEY,
  arrival           INTEGER NOT NULL,
  id                TEXT    NOT NULL,
  version           INTEGER NOT NULL,
  team_id           TEXT    NOT NULL CHECK (team_id <> ''),
  user_id           TEXT    NOT NULL CHECK (user_id <> ''),
  agent_id          TEXT,
  task_id           TEXT,
  visibility        TEXT    NOT NULL DEFAULT 'private' CHECK (visibility IN ('private', 'team', 'restricted')),
  state             TEXT    NOT NULL DEFAULT 'live'
                    CHECK (state IN ('live', 'superseded', 'expired', 'quarantined', 'deleted')),
  kind              TEXT    NOT NULL CHECK (kind IN ('persona', 'episodic', 'instruction')),
  priority          INTEGER NOT NULL CHECK (priority BETWEEN -1 AND 100),
  content           TEXT    NOT NULL,
  metadata          TEXT    NOT NULL DEFAULT '{}',
  session           TEXT,
  produced_by_agent TEXT,
  source_kind       TEXT    NOT NULL,
  trust             INTEGER NOT NULL,
  valid_from        INTEGER,
  valid_to          INTEGER,
  expires_at        INTEGER,
  recorded_at       INTEGER NOT NULL,
  superseded_at     INTEGER,
  superseded_by     TEXT,                     -- id of the memory that replaced this version
  actor             TEXT    NOT NULL,
  verdict_id        TEXT,
  checksum          TEXT    NOT NULL,
  CHECK (kind = 'persona' OR agent_id IS NOT NULL),
  CHECK (priority >= 0 OR kind = 'instruction'),
  UNIQUE (team_id, id, version),
  FOREIGN KEY (team_id, id) REFERENCES memories (team_id, id)
) STRICT;
CREATE UNIQUE INDEX memory_versions_arrival ON memory_versions (team_id, user_id, arrival);

-- Which rows a row was derived from, walked both ways (provenance, quarantine, erasure).
CREATE TABLE sources (
  team_id      TEXT NOT NULL,
  derived_kind TEXT NOT NULL,
  derived_id   TEXT NOT NULL,
  source_kind  TEXT NOT NULL,
  source_id    TEXT NOT NULL,
  PRIMARY KEY (team_id, derived_kind, derived_id, source_kind, source_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX sources_of ON sources (team_id, source_kind, source_id);

-- Durable background work. A job names the principal it runs as. The scope columns are NULL for the operator's.
CREATE TABLE jobs (
  job_no      INTEGER PRIMARY KEY AUTOINCREMENT,
  kind        TEXT    NOT NULL,
  team_id     TEXT,
  user_id     TEXT,
  agent_id    TEXT,
  task_id     TEXT,
  dedupe_key  TEXT,
  payload     TEXT    NOT NULL DEFAULT '{}',
  state       TEXT    NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'done', 'dead')),
  attempts    INTEGER NOT NULL DEFAULT 0,
  not_before  INTEGER NOT NULL DEFAULT 0,
  lease_token TEXT,
  lease_until INTEGER,
  cost        TEXT,
  last_error  TEXT,
  created_at  INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_dedupe ON jobs (dedupe_key) WHERE state = 'queued' AND dedupe_key IS NOT NULL;
CREATE INDEX jobs_due ON jobs (state, kind, not_before);

-- One embedding generation is one vector space. Vectors of two are never compared.
CREATE TABLE embedding_generations (
  generation      INTEGER PRIMARY KEY,
  model           TEXT    NOT NULL,
  revision        TEXT    NOT NULL,
  dim             INTEGER NOT NULL CHECK (dim > 0),
  query_prefix    TEXT    NOT NULL,
  document_prefix TEXT    NOT NULL,
  state           TEXT    NOT NULL CHECK (state IN ('building', 'active', 'retired')),
  created_at      INTEGER NOT NULL,
  activated_at    INTEGER
) STRICT;
CREATE UNIQUE INDEX embedding_generations_active ON embedding_generations (state) WHERE state = 'active';
CREATE UNIQUE INDEX embedding_generations_building ON embedding_generations (state) WHERE state = 'building';

-- The vectors of a generation are canonical rows (float32, unit length, with a checksum), one table a generation
-- and layer so that a user is one rowid range there too: vectors_<generation>_<layer>(slot, vector, checksum).
-- Rows whose vector is not there yet; generation 0 stands for the first one to come. A row with a reason had its
-- vector refused and is not tried again until a reindex.
CREATE TABLE pending_vectors (
  generation INTEGER NOT NULL,
  layer      TEXT    NOT NULL CHECK (layer IN ('messages', 'memories')),
  slot       INTEGER NOT NULL,
  refused    TEXT,
  PRIMARY KEY (generation, layer, slot)
) STRICT, WITHOUT ROWID;

-- Which FTS5 table holds which team's layer.
CREATE TABLE text_indexes (
  table_name TEXT    NOT NULL PRIMARY KEY,
  team_no    INTEGER NOT NULL REFERENCES teams (team_no),
  layer      TEXT    NOT NULL CHECK (layer IN ('messages', 'memories')),
  UNIQUE (team_no, layer)
) STRICT, WITHOUT ROWID;

-- How far each day file of the JSONL fallback is contained in this database.
CREATE TABLE fallback_days (
  day           TEXT    NOT NULL PRIMARY KEY,
  applied_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- For people: stable views with readable times.
CREATE VIEW v_messages AS
  SELECT id, team_id, user_id, agent_id, task_id, session, pos AS position, role, name,
         coalesce(search_text, content ->> '$') AS text, content, tool_calls, client_id,
         strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
         strftime('%Y-%m-%dT%H:%M:%fZ', recorded_at / 1e6, 'unixepoch') AS recorded_at,
         zone, complete, live, branch, source_kind, trust, arrival, slot AS text_rowid
    FROM messages WHERE state = 'live' AND hidden = 0;

CREATE VIEW v_memories AS
  SELECT id, version, team_id, user_id, agent_id, task_id, visibility, kind, priority, content, metadata,
         session, produced_by_agent, source_kind, trust, actor,
         strftime('%Y-%m-%dT%H:%M:%fZ', valid_from / 1e6, 'unixepoch') AS valid_from,
         strftime('%Y-%m-%dT%H:%M:%fZ', valid_to / 1e6, 'unixepoch') AS valid_to,
         strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1e6, 'unixepoch') AS expires_at,
         strftime('%Y-%m-%dT%H:%M:%fZ', recorded_at / 1e6, 'unixepoch') AS recorded_at,
         arrival, slot AS text_rowid
    FROM memory_versions WHERE state = 'live';

CREATE VIEW v_memory_history AS
  SELECT id, version, team_id, user_id, state, kind, priority, content, actor, superseded_by,
         strftime('%Y-%m-%dT%H:%M:%fZ', recorded_at / 1e6, 'unixepoch') AS recorded_at,
         strftime('%Y-%m-%dT%H:%M:%fZ', superseded_at / 1e6, 'unixepoch') AS superseded_at
    FROM memory_versions ORDER BY team_id, id, version;

CREATE VIEW v_sessions AS
  SELECT team_id, user_id, agent_id, session, channel, chat_id, title, pinned,
         strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
         strftime('%Y-%m-%dT%H:%M:%fZ', updated_at / 1e6, 'unixepoch') AS updated_at
    FROM sessions WHERE hidden = 0;

CREATE VIEW v_text_indexes AS
  SELECT t.team_id, i.layer, i.table_name FROM text_indexes i JOIN teams t USING (team_no);

CREATE VIEW v_jobs AS
  SELECT job_no, kind, team_id, user_id, agent_id, state, attempts, last_error, payload,
         strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at
    FROM jobs;
