package s3backend

import (
	"encoding/json"
	"fmt"

	"github.com/buildyard/buildyard/internal/layout"
	"github.com/buildyard/buildyard/internal/registry"
)

// markLocalCopy marks a directory as the local copy of a storage. One that is a storage itself, or a copy of another
// one, is refused.
func markLocalCopy(dir *layout.Dir, name string) error {
	storage, err := registry.LocalCopyOf(dir.Base())
	switch {
	case err != nil:
		return err
	case storage == name:
		return nil
	case storage != "":
		return fmt.Errorf("%s is the working directory of a registry with the storage %s, not %s: use another "+
			"directory (SVC_BASE_PATH)", dir.Base(), storage, name)
	}
	entries, err := dir.ReadDir(layout.TemplatesDir)
	if err != nil {
		return fmt.Errorf("read templates: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s has templates on disk: copy them with \"buildyard registry copy --to %s\", and use an "+
			"empty directory (SVC_BASE_PATH) with the bucket", dir.Base(), name)
	}
	raw, err := json.Marshal(registry.LocalCopyMark{Storage: name})
	if err != nil {
		return fmt.Errorf("encode %s: %w", registry.LocalCopyFile, err)
	}
	return dir.WriteFile("mark", registry.LocalCopyFile, append(raw, '\n'))
}
