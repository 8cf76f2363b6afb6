package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// simMachines finds the VMs of simulated hosts: a file each, anywhere below dir.
func simMachines(dir string) ([]machine, error) {
	var found []machine
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went while we walked
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".vm.json") {
			return err
		}
		raw, err := os.ReadFile(path) //nolint:gosec // below our own directory
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		var file struct {
			VM struct {
				ID, Status string
				Labels     map[string]string
			}
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		found = append(found, machine{
			Instance: file.VM.Labels["instance"], What: path, Running: file.VM.Status == "running",
			Check: strings.HasSuffix(file.VM.ID, checkSuffix),
		})
		return nil
	})
	return found, err
}

// qemuMachines returns the QEMU processes below dir and the directories of VMs that
// have none, such as those that ended in an error.
func qemuMachines(dir, vms string) ([]machine, error) {
	processes, err := rig.QEMUs(dir)
	if err != nil {
		return nil, err
	}
	var found []machine
	running := map[string]bool{}
	for _, q := range processes {
		running[q.UUID] = true
		found = append(found, machine{Instance: q.UUID, What: fmt.Sprintf("QEMU process %d", q.PID), Running: true})
	}
	entries, err := os.ReadDir(vms)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && !running[e.Name()] {
			found = append(found, machine{
				Instance: e.Name(), What: filepath.Join(vms, e.Name()), Check: strings.HasSuffix(e.Name(), checkSuffix),
			})
		}
	}
	return found, nil
}
