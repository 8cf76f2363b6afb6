package tart

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// Files of a VM's directory that are this driver's; tart ignores them.
const (
	recordFile = "buildyard.json"
	runLogFile = "run.log"

	maxRecordBytes = 4 << 20
)

// record is what the driver remembers of a VM. It is written before anything that it describes is done.
type record struct {
	Spec      hv.Spec // with defaults
	CreatedAt time.Time
	StartedAt time.Time // of the last start
	StoppedAt time.Time // zero until the end of the last run was seen
	Version   string    // of tart at the last start

	// Process is tart run of the last start; zero until it was started.
	Process cliproc.Process

	Ready bool // the last start has completed: the guest and its ports were ready
	BySSH bool `json:",omitempty"` // the guest has no guest agent: commands run by SSH

	// StopRequested is set before a stop begins, so that an agent that was killed in between does not
	// take it for a failure.
	StopRequested bool
	Failure       string // why the last run ended without a request
}

// errDamagedRecord reports a record that exists and cannot be read. The VM can only be ended and removed.
var errDamagedRecord = errors.New("its record is damaged; terminate its instance, or remove its directory")

func (m *machine) readRecord() (record, error) {
	var r record
	f, err := os.Open(filepath.Join(m.dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("tart: %w: %s", hv.ErrNotFound, m.id)
	}
	if err != nil {
		return r, fmt.Errorf("tart: read record of VM %s: %w", m.id, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() > maxRecordBytes {
		err = fmt.Errorf("the file has more than %d bytes", maxRecordBytes)
	}
	if err == nil {
		err = json.NewDecoder(f).Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("tart: read record of VM %s: %w: %w", m.id, errDamagedRecord, err)
	}
	return r, nil
}

func (m *machine) writeRecord(r record) error {
	if err := writeJSON(filepath.Join(m.dir, recordFile), r); err != nil {
		return fmt.Errorf("tart: write record of VM %s: %w", m.id, err)
	}
	return nil
}

// writeJSON replaces a file as a whole.
func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it may not exist any more
	}
	return err
}
