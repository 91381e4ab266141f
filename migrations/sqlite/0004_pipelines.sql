-- What the pipelines need: how far each has come, what each run saw and decided, scenes and profiles with their versions,
-- settings of agents, what models cost, and what was put under quarantine.

-- --- The queue ---------------------------------------------------------------------------------------------------
-- Times that were set by a clock which was set back since must not hold work up: each comes with the time of setting.
DROP VIEW v_jobs;
ALTER TABLE jobs ADD COLUMN queued_at INTEGER NOT NULL DEFAULT 0;   -- when not_before was set
ALTER TABLE jobs ADD COLUMN leased_at INTEGER;
ALTER TABLE jobs ADD COLUMN finished_at INTEGER;
ALTER TABLE jobs ADD COLUMN outages INTEGER NOT NULL DEFAULT 0;     -- attempts that no model answered: they end no job
ALTER TABLE jobs ADD COLUMN done INTEGER NOT NULL DEFAULT 0;        -- progress: so many of total
ALTER TABLE jobs ADD COLUMN total INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_key ON jobs (dedupe_key, state);
CREATE INDEX jobs_set_ahead ON jobs (kind, queued_at) WHERE state = 'queued';
CREATE INDEX jobs_done ON jobs (finished_at) WHERE state = 'done';
CREATE VIEW v_jobs AS
  SELECT job_no, kind, team_id, user_id, agent_id, state, attempts, last_error, payload, done, total,
         cost ->> '$.calls' AS calls, cost ->> '$.input_tokens' AS input_tokens,
         cost ->> '$.output_tokens' AS output_tokens,
         strftime('%Y-%m-%dT%H:%M:%fZ', not_before / 1e6, 'unixepoch') AS not_before,
         strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1e6, 'unixepoch') AS lease_until,
         strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1e6, 'unixepoch') AS created_at,
         strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1e6, 'unixepoch') AS finished_at
    FROM jobs;
CREATE VIEW v_dead_letters AS
  SELECT job_no, kind, team_id, user_id, agent_id, payload, attempts, last_error, created_at
    FROM v_jobs WHERE state = 'dead';

-- --- How far the pipelines are -----------------------------------------------------------------------------------
-- One row a stage and subject: extract and session_scenes of a session (its key), scenes and agent_profile of an agent
-- (its id), user_profile of the user (''). What is pending is what lies behind the cursor, and unread_messages; nothing is
-- counted up.
CREATE TABLE pipeline_cursors (
  team_id TEXT    NOT NULL,
  user_id TEXT    NOT NULL,
  stage   TEXT    NOT NULL CHECK (stage IN ('extract', 'session_scenes', 'scenes', 'agent_profile', 'user_profile')),
  subject TEXT    NOT NULL,
  arrival INTEGER NOT NULL DEFAULT 0,  -- the last row that was looked at
  pos     INTEGER NOT NULL DEFAULT 0,  -- extract: its position in the session
  runs    INTEGER NOT NULL DEFAULT 0,  -- successful ones
  ran_at  INTEGER,
  note    TEXT,                        -- extract: the situation as it was last judged
  PRIMARY KEY (team_id, user_id, stage, subject)
) STRICT, WITHOUT ROWID;

-- Messages up to the extraction cursor of their session that no extraction covered: they were on another branch or under
-- quarantine when it passed them by, or what was made of them left with other rows. They are pending whenever they may be
-- read.
CREATE TABLE unread_messages (
  team_id TEXT    NOT NULL,
  user_id TEXT    NOT NULL,
  session TEXT    NOT NULL,
  pos     INTEGER NOT NULL,
  PRIMARY KEY (team_id, user_id, session, pos)
) STRICT, WITHOUT ROWID;

-- What a run saw, was answered and decided: one row a question that was put to a model, or to the rules.
CREATE TABLE pipeline_runs (
  number        INTEGER PRIMARY KEY AUTOINCREMENT,
  team_id       TEXT    NOT NULL CHECK (team_id <> ''),
  id            TEXT    NOT NULL,
  user_id       TEXT    NOT NULL CHECK (user_id <> ''),
  agent_id      TEXT,
  stage         TEXT    NOT NULL CHECK (stage IN ('extract', 'verdict', 'scenes', 'agent_profile', 'user_profile')),
  subject       TEXT    NOT NULL,
  inputs        TEXT    NOT NULL,      -- JSON: ids of what was looked at
  result        TEXT    NOT NULL,      -- JSON: what was made of the answer, and what was refused and why
  decided_by    TEXT    NOT NULL,      -- rules-<version>, or the model
  prompt        TEXT,
  reply         TEXT,                  -- as the model gave it
  input_tokens  INTEGER,
  output_tokens INTEGER,
  finished_at   INTEGER NOT NULL,
  undone_at     INTEGER,
  undone_by     TEXT,
  checksum      TEXT    NOT NULL,      -- of what does not change: all but the two above
  UNIQUE (team_id, id)
) STRICT;

CREATE INDEX pipeline_runs_of ON pipeline_runs (team_id, user_id, stage, subject);

CREATE TABLE verdicts (
  number         INTEGER PRIMARY KEY AUTOINCREMENT,
  team_id        TEXT    NOT NULL CHECK (team_id <> ''),
  id             TEXT    NOT NULL,
  user_id        TEXT    NOT NULL CHECK (user_id <> ''),
  agent_id       TEXT,
  task_id        TEXT,
  session        TEXT    NOT NULL,
  run_id         TEXT    NOT NULL,     -- the extraction that proposed it
  verdict_run_id TEXT,                 -- the comparison that decided; NULL: nothing to compare with
  item           INTEGER NOT NULL,
  action         TEXT    NOT NULL CHECK (action IN ('store', 'skip', 'update', 'merge')),
  proposal       TEXT    NOT NULL,     -- JSON: what was proposed
  candidates     TEXT    NOT NULL,     -- JSON: the memories that it was compared with, as they read then
  target_ids     TEXT    NOT NULL,     -- JSON: the memories that it replaced, or that cover it
  memory_id      TEXT,                 -- the memory that came of it
  reason         TEXT    NOT NULL,
  decided_by     TEXT    NOT NULL,
  decided_at     INTEGER NOT NULL,
  undone_at      INTEGER,
  undone_by      TEXT,
  checksum       TEXT    NOT NULL,
  UNIQUE (team_id, id)
) STRICT;
CREATE INDEX verdicts_of ON verdicts (team_id, user_id, number);
CREATE INDEX verdicts_memory ON verdicts (team_id, memory_id) WHERE memory_id IS NOT NULL;

-- --- Where rows come from ----------------------------------------------------------------------------------------
-- Each version has sources of its own. Nothing wrote into this table before.
DROP TABLE sources;
CREATE TABLE sources (
  team_id         TEXT    NOT NULL,
  derived_kind    TEXT    NOT NULL CHECK (derived_kind IN ('memory', 'scene', 'profile')),
  derived_id      TEXT    NOT NULL,
  derived_version INTEGER NOT NULL,
  source_kind     TEXT    NOT NULL CHECK (source_kind IN ('message', 'memory', 'scene', 'profile')),
  source_id       TEXT    NOT NULL,
  PRIMARY KEY (team_id, derived_kind, derived_id, derived_version, source_kind, source_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX sources_of ON sources (team_id, source_kind, source_id);

-- --- Scenes and profiles -----------------------------------------------------------------------------------------
CREATE TABLE scene_versions (
  number        INTEGER PRIMARY KEY AUTOINCREMENT,
  team_id       TEXT    NOT NULL CHECK (team_id <> ''),
  id            TEXT    NOT NULL,
  version       INTEGER NOT NULL,
  user_id       TEXT    NOT NULL CHECK (user_id <> ''),
  agent_id      TEXT    NOT NULL CHECK (agent_id <> ''),
  task_id       TEXT,
  visibility    TEXT    NOT NULL DEFAULT 'private' CHECK (visibility IN ('private', 'team', 'restricted')),
  state         TEXT    NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'superseded', 'quarantined', 'deleted')),
  name          TEXT    NOT NULL,
  content       TEXT    NOT NULL,
  source_kind   TEXT    NOT NULL,
  trust         INTEGER NOT NULL,
  recorded_at   INTEGER NOT NULL,
  superseded_at INTEGER,
  actor         TEXT    NOT NULL,
  run_id        TEXT,                  -- the run that wrote it; NULL: a person did
  checksum      TEXT    NOT NULL,      -- of name and content
  UNIQUE (team_id, id, version)
) STRICT;
CREATE UNIQUE INDEX scene_versions_live ON scene_versions (team_id, user_id, agent_id, id) WHERE state = 'live';

CREATE TABLE profile_versions (
  number        INTEGER PRIMARY KEY AUTOINCREMENT,
  team_id       TEXT    NOT NULL CHECK (team_id <> ''),
  id            TEXT    NOT NULL,      -- of this version
  user_id       TEXT    NOT NULL CHECK (user_id <> ''),
  agent_id      TEXT,                  -- NULL: the user's profile, shared by all of the user's agents
  profile       TEXT    NOT NULL CHECK (profile IN ('agent', 'user')),
  version       INTEGER NOT NULL,
  visibility    TEXT    NOT NULL DEFAULT 'private' CHECK (visibility IN ('private', 'team', 'restricted')),
  state         TEXT    NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'superseded', 'quarantined', 'deleted')),
  content       TEXT    NOT NULL,
  source_kind   TEXT    NOT NULL,
  trust         INTEGER NOT NULL,
  recorded_at   INTEGER NOT NULL,
  superseded_at INTEGER,
  actor         TEXT    NOT NULL,
  run_id        TEXT,
  checksum      TEXT    NOT NULL,
  CHECK ((profile = 'user') = (agent_id IS NULL)),
  UNIQUE (team_id, id)
) STRICT;
CREATE UNIQUE INDEX profile_versions_of ON profile_versions (team_id, user_id, coalesce(agent_id, ''), version);
CREATE UNIQUE INDEX profile_versions_live ON profile_versions (team_id, user_id, coalesce(agent_id, ''))
  WHERE state = 'live';

-- --- Settings of agents, cost --------------------------------------------------------------------------------------
CREATE TABLE agent_settings (
  team_id    TEXT    NOT NULL,
  user_id    TEXT    NOT NULL,
  agent_id   TEXT    NOT NULL,
  settings   TEXT    NOT NULL,         -- JSON: those that differ from the defaults
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (team_id, user_id, agent_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE model_usage (
  team_id       TEXT    NOT NULL,
  day           TEXT    NOT NULL,      -- in the store's time zone
  model         TEXT    NOT NULL,
  task          TEXT    NOT NULL,
  calls         INTEGER NOT NULL,
  failures      INTEGER NOT NULL,
  input_tokens  INTEGER NOT NULL,      -- as the model reported them, else estimated
  output_tokens INTEGER NOT NULL,
  PRIMARY KEY (team_id, day, model, task)
) STRICT, WITHOUT ROWID;

-- A model that failed several times in a row is left alone for a while.
CREATE TABLE model_breakers (
  model      TEXT    NOT NULL PRIMARY KEY,
  failures   INTEGER NOT NULL,         -- in a row
  opened_at  INTEGER,
  open_until INTEGER,                  -- NULL: closed
  last_error TEXT
) STRICT, WITHOUT ROWID;

-- --- Quarantine ----------------------------------------------------------------------------------------------------
ALTER TABLE messages ADD COLUMN quarantined_at INTEGER;
DROP INDEX messages_whole;
CREATE INDEX messages_whole ON messages (zone, created_at, recorded_at, agent_id, task_id, branch, live, state, hidden,
  deleted_at, complete, source_kind, trust, usage, meta, quarantined_at);
CREATE TABLE quarantines (
  number      INTEGER PRIMARY KEY AUTOINCREMENT,
  team_id     TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  user_id     TEXT    NOT NULL,        -- whose rows
  criteria    TEXT    NOT NULL,        -- JSON
  made_by     TEXT    NOT NULL,
  made_at     INTEGER NOT NULL,
  released_at INTEGER,
  UNIQUE (team_id, id)
) STRICT;
-- What left with it, and what it was before.
CREATE TABLE quarantined_rows (
  team_id       TEXT    NOT NULL,
  quarantine_id TEXT    NOT NULL,
  row_kind      TEXT    NOT NULL CHECK (row_kind IN ('message', 'memory', 'scene', 'profile')),
  row_id        TEXT    NOT NULL,
  version       INTEGER NOT NULL,
  prior_state   TEXT    NOT NULL,
  PRIMARY KEY (team_id, quarantine_id, row_kind, row_id, version),
  FOREIGN KEY (team_id, quarantine_id) REFERENCES quarantines (team_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX quarantined_rows_of ON quarantined_rows (team_id, row_kind, row_id);

-- --- The second copy of columns that have no checksum (see step 3) ---------------------------------------------------
CREATE INDEX pipeline_cursors_whole ON pipeline_cursors (ran_at, arrival, pos, runs, note);
CREATE INDEX pipeline_runs_whole ON pipeline_runs (undone_at, undone_by, checksum);
CREATE INDEX verdicts_whole ON verdicts (undone_at, undone_by, checksum);
CREATE INDEX scene_versions_whole ON scene_versions (recorded_at, user_id, agent_id, task_id, visibility, state, name,
  source_kind, trust, superseded_at, actor, run_id);
CREATE INDEX profile_versions_whole ON profile_versions (recorded_at, user_id, agent_id, profile, version, visibility,
  state, source_kind, trust, superseded_at, actor, run_id);
CREATE INDEX agent_settings_whole ON agent_settings (updated_at, settings);
CREATE INDEX model_usage_whole ON model_usage (calls, failures, input_tokens, output_tokens);
CREATE INDEX quarantines_whole ON quarantines (made_at, user_id, criteria, made_by, released_at);
CREATE INDEX quarantined_rows_whole ON quarantined_rows (prior_state);

-- --- For people ------------------------------------------------------------------------------------------------------
CREATE VIEW v_pending AS
  SELECT s.team_id, s.user_id, s.agent_id, s.session, count(*) AS messages,
         strftime('%Y-%m-%dT%H:%M:%fZ', min(m.recorded_at) / 1e6, 'unixepoch') AS since
    FROM sessions s
    LEFT JOIN pipeline_cursors c ON c.team_id = s.team_id AND c.user_id = s.user_id AND c.stage = 'extract'
         AND c.subject = s.session
    JOIN messages m ON m.slot IN (
           SELECT b.slot FROM messages b WHERE b.team_id = s.team_id AND b.user_id = s.user_id AND b.session = s.session
              AND b.pos > coalesce(c.pos, 0)
              AND b.state = 'live' AND b.hidden = 0 AND b.branch = 0 AND b.quarantined_at IS NULL
           UNION ALL
           SELECT b.slot FROM unread_messages u CROSS JOIN messages b ON b.team_id = u.team_id AND b.user_id = u.user_id
              AND b.session = u.session AND b.pos = u.pos
            WHERE u.team_id = s.team_id AND u.user_id = s.user_id AND u.session = s.session
              AND b.state = 'live' AND b.hidden = 0 AND b.branch = 0 AND b.quarantined_at IS NULL)
   WHERE s.hidden = 0
   GROUP BY s.team_id, s.user_id, s.agent_id, s.session;

CREATE VIEW v_verdicts AS
  SELECT id, team_id, user_id, agent_id, session, action, proposal ->> '$.content' AS content,
         proposal ->> '$.kind' AS kind, proposal -> '$.source_ids' AS source_ids, target_ids, memory_id, reason,
         decided_by, run_id,
         strftime('%Y-%m-%dT%H:%M:%fZ', decided_at / 1e6, 'unixepoch') AS decided_at,
         strftime('%Y-%m-%dT%H:%M:%fZ', undone_at / 1e6, 'unixepoch') AS undone_at, undone_by, number
    FROM verdicts;

CREATE VIEW v_runs AS
  SELECT id, team_id, user_id, agent_id, stage, subject, inputs, result, decided_by, prompt, reply, input_tokens,
         output_tokens, strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1e6, 'unixepoch') AS finished_at, number
    FROM pipeline_runs;

CREATE VIEW v_scenes AS
  SELECT id, version, team_id, user_id, agent_id, name, content, actor, trust,
         strftime('%Y-%m-%dT%H:%M:%fZ', recorded_at / 1e6, 'unixepoch') AS recorded_at
    FROM scene_versions WHERE state = 'live';

CREATE VIEW v_profiles AS
  SELECT id, profile, version, team_id, user_id, agent_id, content, actor, trust,
         strftime('%Y-%m-%dT%H:%M:%fZ', recorded_at / 1e6, 'unixepoch') AS recorded_at
    FROM profile_versions WHERE state = 'live';

CREATE VIEW v_model_usage AS
  SELECT team_id, day, model, task, calls, failures, input_tokens, output_tokens FROM model_usage;
