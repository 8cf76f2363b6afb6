package api

const (
	// PathBackup streams a backup of all data of the controller: a database, then its sha256 as the last 32
	// bytes.
	PathBackup = "/api/v1/admin/backup"
	// HeaderBackupSize contains the approximate number of bytes of a backup.
	HeaderBackupSize = "X-Backup-Size"
)
