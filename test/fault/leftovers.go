package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkSuffix ends the ID of a VM that a sanity test starts in addition to an instance's own.
const checkSuffix = "-check"

// saveDirs finds what saves have left in the nodes' directories below dir: everything
// that is in a directory named "saves".
func saveDirs(dir string) (found []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went while we walked
		case err != nil:
			return err
		case filepath.Base(filepath.Dir(path)) == "saves":
			found = append(found, path)
			return skip(d)
		case d.IsDir() && (d.Name() == "templates" || d.Name() == "vms"):
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// skip goes past an entry without looking into it.
func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// upload is a push that the registry has not finished.
type upload struct {
	Dir, Template, Tag string
}

// uploads finds the unfinished pushes in a registry's storage. The registry keeps one
// for a day after its last call, so that its client can go on.
func uploads(base string) ([]upload, error) {
	dirs, err := filepath.Glob(filepath.Join(base, "upload_dir", "*", "session.json"))
	if err != nil {
		return nil, err
	}
	var found []upload
	for _, path := range dirs {
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var session struct {
			TemplateID string `json:"template_id"`
			Request    struct {
				Tag string `json:"tag"`
			} `json:"request"`
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(raw, &session); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if session.Result == nil {
			found = append(found, upload{filepath.Dir(path), session.TemplateID, session.Request.Tag})
		}
	}
	return found, nil
}
