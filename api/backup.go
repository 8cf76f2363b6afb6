package api

const (
	// PathBackup streams a backup of everything the controller keeps: a database, then its sha256 as the last 32 bytes.
	PathBackup = "/api/v1/admin/backup"
	// HeaderBackupSize contains the approximate number of bytes of a backup.
	HeaderBackupSize = "X-Backup-Size"
)
