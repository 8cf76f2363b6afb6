package update

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// programName is the file of the program in a package and in the directory of a version.
const programName = "buildnode"

// programAt returns the path of a version's program.
func programAt(at datadir.Dir, version string) string {
	return filepath.Join(at.Versions(), version, programName)
}

// installed reports whether a program was installed by an update.
func installed(at datadir.Dir, file string) bool {
	dir, err := filepath.EvalSymlinks(at.Versions())
	if err != nil {
		return false
	}
	file, err = filepath.EvalSymlinks(file)
	return err == nil && filepath.Dir(filepath.Dir(file)) == dir
}

// BootOptions describe the program that starts.
type BootOptions struct {
	Home    datadir.Dir
	Version string                  // of this program
	Path    string                  // its file
	Become  func(path string) error // does not return on success
	Logger  *slog.Logger
}

// Boot is the first step of an agent: when an update has installed another version, it replaces
// this process by that version and does not return. It returns if this program is the one to run.
func Boot(o BootOptions) error {
	if installed(o.Home, o.Path) {
		return nil
	}
	if _, err := os.Stat(o.Home.Update()); err != nil {
		return nil
	}
	for {
		version, err := bootOnce(o)
		if err != nil || version == "" {
			return err
		}
		err = o.Become(programAt(o.Home, version))
		o.Logger.Error("starting an installed agent version failed; it is not used again", "version", version, "error",
			err)
		if err := giveUp(o.Home, version, err); err != nil {
			return nil // this program runs, and the next start retries
		}
	}
}

// bootOnce decides with the lock of the data directory held, so that a second agent that was
// started by mistake decides nothing, and makes the decision durable before it takes effect.
func bootOnce(o BootOptions) (version string, err error) {
	lock, err := o.Home.Lock()
	if err != nil {
		return "", err
	}
	defer lock.Release()
	s, err := load(o.Home)
	if err != nil {
		o.Logger.Error("reading the update state failed; the originally installed program runs", "error", err)
		return "", nil
	}
	next, version := s.boot(program{o.Version, o.Path})
	if err := next.save(o.Home); err != nil {
		o.Logger.Error("writing the update state failed; the originally installed program runs", "error", err)
		return "", nil
	}
	return version, nil
}

// giveUp removes a version that cannot be started from the state.
func giveUp(at datadir.Dir, version string, cause error) error {
	s, err := load(at)
	if err != nil {
		return err
	}
	switch {
	case s.Trial != nil && s.Trial.Version == version:
		s = s.failed(fmt.Sprintf("the new agent cannot be begun: %v", cause))
	case s.Good == version:
		s.Good = ""
	default:
		return errors.New("the version is not in the update state")
	}
	return s.save(at)
}
