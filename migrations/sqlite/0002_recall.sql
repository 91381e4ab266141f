-- What exact, explained recall needs: dictionaries of teams, text indexes built anew beside the ones that answer,
-- validity as it was stated before later versions cut it short, and stored traces of recalls.

-- Words that a team's texts are segmented by, beside the general dictionary. The digest stands in for all of them:
-- it is read with the membership, so that every call notices a dictionary that another process changed.
CREATE TABLE dictionary_words (
  team_id   TEXT    NOT NULL REFERENCES teams (team_id),
  word      TEXT    NOT NULL CHECK (word <> ''),
  frequency INTEGER NOT NULL CHECK (frequency > 0),
  added_by  TEXT    NOT NULL,
  added_at  INTEGER NOT NULL,
  PRIMARY KEY (team_id, word)
) STRICT, WITHOUT ROWID;
ALTER TABLE teams ADD COLUMN dictionary_digest TEXT NOT NULL DEFAULT '';

-- Each FTS5 table names the tokenizer that made its tokens. One that is being built answers nothing yet: rows up to
-- filled_to are in it and are kept in step by every write; the rest comes in batches.
DROP VIEW v_text_indexes;
ALTER TABLE text_indexes RENAME TO text_indexes_1;
CREATE TABLE text_indexes (
  table_name TEXT    NOT NULL PRIMARY KEY,
  team_no    INTEGER NOT NULL REFERENCES teams (team_no),
  layer      TEXT    NOT NULL CHECK (layer IN ('messages', 'memories')),
  state      TEXT    NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'building')),
  tokenizer  TEXT    NOT NULL,
  filled_to  INTEGER NOT NULL DEFAULT 0,
  UNIQUE (team_no, layer, state)
) STRICT, WITHOUT ROWID;
INSERT INTO text_indexes (table_name, team_no, layer, tokenizer)
  SELECT table_name, team_no, layer, coalesce((SELECT value FROM store_meta WHERE key = 'tokenizer'), '')
    FROM text_indexes_1;
DROP TABLE text_indexes_1;
DELETE FROM store_meta WHERE key = 'tokenizer';  -- each index names its own now
CREATE VIEW v_text_indexes AS
  SELECT t.team_id, i.layer, i.table_name FROM text_indexes i JOIN teams t USING (team_no) WHERE i.state = 'active';

-- valid_to ends where a later version begins; what the store believed before that version came needs the end that
-- was stated. (Versions superseded before this step: not known any more, taken as open.)
ALTER TABLE memory_versions ADD COLUMN stated_valid_to INTEGER;
UPDATE memory_versions SET stated_valid_to = valid_to WHERE superseded_at IS NULL;

-- A recall as it was asked and answered, to be replayed. It belongs to its asker alone.
CREATE TABLE recall_traces (
  team_id      TEXT    NOT NULL CHECK (team_id <> ''),
  user_id      TEXT    NOT NULL CHECK (user_id <> ''),
  id           TEXT    NOT NULL,
  agent_id     TEXT,
  task_id      TEXT,
  layer        TEXT    NOT NULL CHECK (layer IN ('messages', 'memories')),
  asked_at     INTEGER NOT NULL,
  question     TEXT    NOT NULL,              -- JSON: the query and its options
  settings     TEXT    NOT NULL,              -- JSON: what ranking depended on
  generation   INTEGER,                       -- of the query vector
  query_vector BLOB,
  answer       TEXT    NOT NULL,              -- JSON: hits and candidates
  PRIMARY KEY (team_id, user_id, id)
) STRICT, WITHOUT ROWID;
CREATE VIEW v_recall_traces AS
  SELECT id, team_id, user_id, agent_id, layer, question ->> '$.query' AS query,
         strftime('%Y-%m-%dT%H:%M:%fZ', asked_at / 1e6, 'unixepoch') AS asked_at, answer
    FROM recall_traces;
