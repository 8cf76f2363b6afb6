// Package service installs the node agent as a service of the operating system: a unit of systemd on Linux, a
// LaunchAgent of launchd on macOS.
//
// It does not run the agent, and it does not check whether the host is fit for a node: hostcheck does. It calls
// systemctl and launchctl as they are in PATH.
//
// Invariant: no operation stops a VM or removes data of the node, and a service file is replaced as a whole.
package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/selfexec"
)

const (
	// commandTimeout limits one call of systemctl or launchctl. A stop waits for the agent, which systemd kills after
	// 90 s.
	commandTimeout = 2 * time.Minute

	maxWordBytes = 4096 // of an argument or a variable in a service file
	maxFileBytes = 1 << 20
)

// Definition is what the service runs.
type Definition struct {
	Program string   // absolute path
	Args    []string // without the program
	Env     []string // NAME=VALUE, later ones replace earlier ones
}

// Status is the state of the service. Its JSON form is the output of "buildnode service status".
type Status struct {
	Manager   string `json:"manager"` // systemd or launchd
	Name      string `json:"name"`
	File      string `json:"file"`
	Installed bool   `json:"installed"` // the file exists
	Loaded    bool   `json:"loaded"`    // the manager knows the service
	Enabled   bool   `json:"enabled"`   // it starts with the machine, or with the login of its user
	Running   bool   `json:"running"`
	State     string `json:"state,omitempty"` // in the words of the manager
	PID       int    `json:"pid,omitempty"`
	LastExit  string `json:"last_exit,omitempty"` // code or signal of the last run that ended; "": none is known
	Restarts  int    `json:"restarts"`            // by the manager, since the service was loaded

	stale bool // the file has changed since the manager read it
}

// LogOptions select a part of the service's log.
type LogOptions struct {
	Lines  uint // the last lines
	Follow bool // wait for more
}

// check returns an error if the definition cannot be written to a service file.
func (d Definition) check() error {
	if !filepath.IsAbs(d.Program) {
		return farm.Refused("The path of the program is not absolute: %q", d.Program)
	}
	for _, word := range slices.Concat([]string{d.Program}, d.Args, d.Env) {
		if len(word) > maxWordBytes {
			return farm.Refused("An argument or variable has %d bytes; the limit is %d", len(word), maxWordBytes)
		}
		if !utf8.ValidString(word) || strings.ContainsFunc(word, unicode.IsControl) {
			return farm.Refused("%q cannot be in a service file: it has control characters or is not UTF-8", word)
		}
	}
	for _, variable := range d.Env {
		if !isVariable(variable) {
			return farm.Refused("Invalid variable %q: want NAME=VALUE", variable)
		}
	}
	return nil
}

// isVariable reports whether a text is NAME=VALUE with a name of letters, digits and "_".
func isVariable(text string) bool {
	name, _, found := strings.Cut(text, "=")
	outside := func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	return found && name != "" && !strings.ContainsFunc(name, outside) && (name[0] < '0' || name[0] > '9')
}

// serviceFile is a file that a service manager reads.
type serviceFile struct {
	path   string
	marker string // is in every file that this package wrote
}

// read returns the content of the file, or nil if it does not exist.
func (f serviceFile) read() ([]byte, error) {
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read service file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, farm.Refused("%s is not a service file: remove it first", f.path)
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("read service file: %w", err)
	}
	return text, nil
}

// write replaces the file by text if it differs and returns what was done; "" if nothing was. A file that this package
// did not write is kept with the suffix ".old".
func (f serviceFile) write(text []byte) (step string, err error) {
	former, err := f.read()
	if err != nil || former != nil && bytes.Equal(former, text) {
		return "", err
	}
	step = "wrote " + f.path
	switch {
	case former == nil:
	case bytes.Contains(former, []byte(f.marker)):
		step = "replaced " + f.path
	default:
		if err := replaceFile(f.path+".old", former); err != nil {
			return "", err
		}
		step = fmt.Sprintf("replaced %s; the former file is %s.old", f.path, f.path)
	}
	return step, replaceFile(f.path, text)
}

// replaceFile replaces a file as a whole. Service managers must be able to read it.
func replaceFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write service file: %w", err)
	}
	temporary := path + ".new"
	if err := datadir.WriteFile(temporary, text); err != nil {
		return err
	}
	err := errors.Join(os.Chmod(temporary, 0o644), os.Rename(temporary, path))
	if err != nil {
		return fmt.Errorf("write service file: %w", errors.Join(err, os.Remove(temporary)))
	}
	return datadir.SyncDir(filepath.Dir(path))
}

// remove removes the file and reports whether it existed.
func (f serviceFile) remove() (existed bool, err error) {
	err = os.Remove(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove service file: %w", err)
	}
	return true, datadir.SyncDir(filepath.Dir(f.path))
}

// ShowLog runs a log command and passes its output on, until it ends or ctx does.
func ShowLog(ctx context.Context, command []string, out, errOut io.Writer) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("show the log with %s: %w", command[0], err)
	}
	return nil
}

// ReadLog returns at most limit bytes of the output of a log command. It returns an error of the command only if there
// was no output.
func ReadLog(ctx context.Context, command []string, limit int) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(out, int64(limit)))
	if len(text) == limit {
		cancel() // it waits for a reader
	}
	if ended := cmd.Wait(); len(text) == 0 && err == nil {
		err = ended
	}
	return text, err
}

// runCommand runs a program of the service manager and returns its standard output. The error of a program that fails
// has its standard error; see exitCode.
func runCommand(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	out, err := selfexec.Run(ctx, "", program, args...)
	if errors.Is(err, exec.ErrNotFound) {
		return "", farm.Refused("%s not found: this machine has no such service manager", program)
	}
	if err != nil {
		return out, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return out, nil
}

// exitCode returns the exit code of a program that failed, or -1 if it did not run or was killed.
func exitCode(err error) int {
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return ended.ExitCode()
	}
	return -1
}
