-- What surviving full disks, lost files and damage needs: which backups cover which part of the fallback, lines that the
-- fallback could not take, and a second copy of columns that nothing else would contradict.

-- Backups that were read back and found sound. A day file may go only where one of them, still there and still the
-- same, contains it whole.
CREATE TABLE backups (
  backup_no   INTEGER PRIMARY KEY AUTOINCREMENT,
  path        TEXT    NOT NULL,
  taken_at    INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,
  sha256      TEXT    NOT NULL,
  verified_at INTEGER NOT NULL
) STRICT;
CREATE TABLE backup_days (
  backup_no     INTEGER NOT NULL REFERENCES backups (backup_no) ON DELETE CASCADE,
  day           TEXT    NOT NULL,
  covered_bytes INTEGER NOT NULL,
  PRIMARY KEY (backup_no, day)
) STRICT, WITHOUT ROWID;
CREATE VIEW v_backups AS
  SELECT backup_no, path, bytes, sha256,
         strftime('%Y-%m-%dT%H:%M:%fZ', taken_at / 1e6, 'unixepoch') AS taken_at,
         strftime('%Y-%m-%dT%H:%M:%fZ', verified_at / 1e6, 'unixepoch') AS verified_at
    FROM backups;

-- What stood before a mark when it was set (CRC-32 of its last bytes): another file in the place of a day's is noticed.
ALTER TABLE fallback_days ADD COLUMN tail INTEGER;

-- Operations that were committed while the fallback could not be written, by their line number. The next write that
-- reaches the fallback appends them there, before its own.
CREATE TABLE unwritten_lines (
  number    INTEGER PRIMARY KEY,
  operation TEXT    NOT NULL
) STRICT;

-- SQLite has no checksums of its pages. A changed bit in a column that stands nowhere else is a wrong value that
-- nothing contradicts. These indexes hold such columns a second time, so that SQLite's own integrity check compares
-- the two. (What messages and memories say, and with them their largest columns, has a checksum in the row.)
-- No query uses them: each begins with a column that nothing is searched by.

CREATE INDEX store_meta_whole ON store_meta (value);
CREATE INDEX teams_whole ON teams (created_at, auto_join, dictionary_digest);
CREATE INDEX members_whole ON members (joined_at, left_at, role);
CREATE INDEX owners_whole ON owners (last_number, last_arrival);
CREATE INDEX sessions_whole ON sessions (titled_by, title, agent_id, task_id, channel, chat_id, pinned, hidden,
  last_pos, last_fork, created_at, updated_at);
CREATE INDEX messages_whole ON messages (zone, created_at, recorded_at, agent_id, task_id, branch, live, state, hidden,
  deleted_at, complete, source_kind, trust, usage, meta);
CREATE INDEX memories_whole ON memories (created_at, user_id, version, idempotency_key, namespace, key);
CREATE INDEX memory_versions_whole ON memory_versions (stated_valid_to, version, user_id, agent_id, task_id, visibility,
  state, priority, metadata, session, produced_by_agent, source_kind, trust, valid_from, valid_to, expires_at,
  recorded_at, superseded_at, superseded_by, actor, verdict_id);
CREATE INDEX dictionary_words_whole ON dictionary_words (added_at, added_by, frequency);
CREATE INDEX embedding_generations_whole ON embedding_generations (created_at, model, revision, dim, query_prefix,
  document_prefix, state, activated_at);
CREATE INDEX recall_traces_whole ON recall_traces (generation, asked_at, agent_id, task_id, layer, question, settings,
  query_vector, answer);
CREATE INDEX schema_migrations_whole ON schema_migrations (applied_at, name, checksum);
CREATE INDEX backups_whole ON backups (bytes, path, taken_at, sha256, verified_at);
CREATE INDEX backup_days_whole ON backup_days (covered_bytes);
CREATE INDEX unwritten_lines_whole ON unwritten_lines (operation);
