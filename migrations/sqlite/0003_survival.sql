-- What surviving full disks, lost files and damage needs: which backups cover which part of the fallback, and lines
-- that the fallback could not take.

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

-- Operations that were committed while the fallback could not be written, by their line number. The next write that
-- reaches the fallback appends them there, before its own.
CREATE TABLE unwritten_lines (
  number    INTEGER PRIMARY KEY,
  operation TEXT    NOT NULL
) STRICT;
