package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The flags of events, FSEventStreamEventFlags in Apple's documentation of File System Events.
const (
	evMustScan     = 0x1 // with everything below
	evUserDropped  = 0x2
	evKernDropped  = 0x4
	evIDsWrapped   = 0x8
	evHistoryDone  = 0x10
	evRootChanged  = 0x20
	evMount        = 0x40
	evUnmount      = 0x80
	evCreated      = 0x100
	evRemoved      = 0x200
	evInodeMeta    = 0x400
	evRenamed      = 0x800
	evModified     = 0x1000
	evIsFile       = 0x10000
	evIsDir        = 0x20000
	evIsSymlink    = 0x40000
	evOwn          = 0x80000
	evHardlink     = 0x100000
	evLastHardlink = 0x200000
	evCloned       = 0x400000

	evSinceNow = ^uint64(0)
)

// dataVolume is where the volume with the user's files is mounted on a Mac; links of the
// system make its directories part of the root.
const dataVolume = "/System/Volumes/Data"

// macPath returns a path as a walk from the root sees it.
func macPath(path string) string {
	path = filepath.Clean("/" + path)
	if rest, ok := strings.CutPrefix(path, dataVolume); ok && (rest == "" || rest[0] == '/') {
		return filepath.Clean("/" + rest)
	}
	return path
}

// addFSEvent adds the change that an event of FSEvents means. Flags of several events on one path are
// merged, and their order is lost: the current state of the path decides. It reports whether mounts
// changed.
func (s *watchConfig) addFSEvent(buffer *changeBuffer, path string, flags uint32) (mounts bool) {
	path = macPath(path)
	switch {
	case flags&evIDsWrapped != 0:
		s.addLostChanges(buffer)
	case flags&(evMustScan|evUserDropped|evKernDropped) != 0:
		s.addDirChange(buffer, path, DirChanged)
	case flags&evRootChanged != 0:
		s.addDirChange(buffer, path, currentKind(path, DirChanged))
	case flags&(evMount|evUnmount) != 0:
		s.addDirChange(buffer, path, DirChanged)
		return true
	case flags&evHistoryDone != 0 || flags&evOwn != 0:
	case flags&evIsDir != 0:
		if flags&(evCreated|evRemoved|evRenamed|evCloned) != 0 {
			s.addDirChange(buffer, path, currentKind(path, DirChanged))
		}
	case flags&(evIsFile|evIsSymlink|evHardlink|evLastHardlink) != 0:
		about := uint32(evCreated | evRemoved | evRenamed | evModified | evInodeMeta | evCloned | evHardlink)
		if flags&about != 0 && s.WantsFile(filepath.Base(path)) && s.isWatched(parentPath(path)) {
			buffer.add(path, currentKind(path, FileChanged))
		}
	default: // of a directory in which something changed
		s.addDirChange(buffer, path, currentKind(path, DirChanged))
	}
	return false
}

// currentKind returns the change to report for a path: Gone, if it no longer exists.
func currentKind(path string, what ChangeKind) ChangeKind {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return Removed
	}
	return what
}

// fsEventsProgress is what FSEvents needs to catch up: event numbers are permanent, as long as the volumes
// are the same.
type fsEventsProgress struct {
	Volumes   []string `json:"volumes"` // UUIDs
	LastEvent uint64   `json:"event"`   // the last one that was delivered
}

// resumePoint returns the event to continue after, and whether earlier events are lost.
func resumePoint(file string, volumes []string) (event uint64, lost bool) {
	if file == "" {
		return evSinceNow, false
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return evSinceNow, false
	}
	var p fsEventsProgress
	if err != nil || json.Unmarshal(b, &p) != nil || p.LastEvent == 0 || !slices.Equal(p.Volumes, volumes) ||
		slices.Contains(volumes, "") {
		return evSinceNow, true
	}
	return p.LastEvent, false
}

// save writes progress to a file, whole or not at all.
func (p fsEventsProgress) save(file string) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", b, 0o600); err != nil {
		return fmt.Errorf("save the position in the event stream: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("save the position in the event stream: %w", err)
	}
	return nil
}
