package api

const (
	// PathBackup streams a backup of everything the controller keeps: a database, then its sha256 as the last 32 bytes.
	PathBackup = "/api/v1/admin/backup"
	// HeaderBackupSize tells about how many bytes of a backup will come.
	HeaderBackupSize = "X-Backup-Size"
)
