package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/buildyard/buildyard/internal/farm"
)

// StorageSchema is the version of the storage as a whole: its directories and what is in them. storageFile has it, and
// a storage without that file has version 1.
const StorageSchema = 1

const (
	storageFile     = "storage.json"
	maxStorageBytes = 64 << 10
)

// The versions that this program supports.
var (
	schemas = farm.SupportedVersions{
		Subject: "Template schema", Oldest: 1, Newest: Schema, Reader: "this registry",
		IfNewer: "start the release that wrote the template",
	}
	storageSchemas = farm.SupportedVersions{
		Subject: "Registry storage schema", Oldest: 1, Newest: StorageSchema, Reader: "this registry",
		IfNewer: "start the release that wrote the storage, or restore a copy from before that upgrade",
		IfOlder: "start the release between the one that wrote the storage and this one first",
	}
)

// checkStorageSchema refuses a storage whose schema this program does not support.
func (d *Dir) checkStorageSchema() error {
	raw, err := d.readFile(storageFile, maxStorageBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", storageFile, err)
	}
	var file struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return fmt.Errorf("read %s: %w", storageFile, err)
	}
	return storageSchemas.Check(file.Schema)
}
