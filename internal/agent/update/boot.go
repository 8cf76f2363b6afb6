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

// programPath returns the path of a version's program.
func programPath(at datadir.Dir, version string) string {
	return filepath.Join(at.AgentVersionsDir(), version, programName)
}

// isInstalled reports whether a program was installed by an update.
func isInstalled(at datadir.Dir, file string) bool {
	dir, err := filepath.EvalSymlinks(at.AgentVersionsDir())
	if err != nil {
		return false
	}
	file, err = filepath.EvalSymlinks(file)
	return err == nil && filepath.Dir(filepath.Dir(file)) == dir
}

// BootOptions describe the program that starts.
type BootOptions struct {
	DataDir        datadir.Dir
	Version        string                  // of this program
	ProgramPath    string                  // its file
	ReplaceProcess func(path string) error // does not return on success
	Logger         *slog.Logger
}

// Boot is the first step of an agent: when an update has installed another version, it replaces
// this process by that version and does not return. It returns if this program is the one to run.
func Boot(o BootOptions) error {
	if isInstalled(o.DataDir, o.ProgramPath) {
		return nil
	}
	if _, err := os.Stat(o.DataDir.UpdateStateFile()); err != nil {
		return nil
	}
	for {
		version, err := bootOnce(o)
		if err != nil || version == "" {
			return err
		}
		err = o.ReplaceProcess(programPath(o.DataDir, version))
		o.Logger.Error("starting an installed agent version failed; it is not used again", "version", version, "error",
			err)
		if err := abandonVersion(o.DataDir, version, err); err != nil {
			return nil // this program runs, and the next start retries
		}
	}
}

// bootOnce decides with the lock of the data directory held, so that a second agent that was
// started by mistake decides nothing, and makes the decision durable before it takes effect.
func bootOnce(o BootOptions) (version string, err error) {
	lock, err := o.DataDir.Lock()
	if err != nil {
		return "", err
	}
	defer lock.Release()
	s, err := loadState(o.DataDir)
	if err != nil {
		o.Logger.Error("reading the update state failed; the originally installed program runs", "error", err)
		return "", nil
	}
	next, version := s.chooseVersion(program{o.Version, o.ProgramPath})
	if err := next.save(o.DataDir); err != nil {
		o.Logger.Error("writing the update state failed; the originally installed program runs", "error", err)
		return "", nil
	}
	return version, nil
}

// abandonVersion removes a version that cannot be started from the state.
func abandonVersion(at datadir.Dir, version string, cause error) error {
	s, err := loadState(at)
	if err != nil {
		return err
	}
	switch {
	case s.Trial != nil && s.Trial.Version == version:
		s = s.withTrialFailed(fmt.Sprintf("the new agent cannot be begun: %v", cause))
	case s.ConfirmedVersion == version:
		s.ConfirmedVersion = ""
	default:
		return errors.New("the version is not in the update state")
	}
	return s.save(at)
}
