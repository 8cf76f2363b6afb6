package tart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

const (
	limitProblem = "the Mac refuses another macOS guest although none runs here; restart it"

	// limitProblemAge is how long a refusal counts. A node with a problem gets no starts, so that only
	// another attempt shows that macOS permits one again.
	limitProblemAge = 30 * time.Minute

	// guestProcess is the program of macOS in which the Virtualization framework runs one guest, of any
	// program that uses the framework.
	guestProcess = "com.apple.Virtualization.VirtualMachine"
)

// errGuestLimit reports that macOS runs no further macOS guest.
var errGuestLimit = farm.MarkFailure(errors.New("the Mac refuses another macOS guest"), farm.FailureLicense, "")

var _ hv.ProblemReporter = (*Driver)(nil)

// guestLimit is whether macOS has refused a guest although none runs.
type guestLimit struct {
	mu        sync.Mutex // guards the field below
	refusedAt time.Time  // zero: a start has succeeded since then
}

func (l *guestLimit) record(refusedAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusedAt = refusedAt
}

func (l *guestLimit) problem(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusedAt.IsZero() || now.Sub(l.refusedAt) >= limitProblemAge {
		return ""
	}
	return limitProblem
}

// Problem returns why the Mac starts no guests: macOS may count guests that have ended until it restarts.
func (d *Driver) Problem() string { return d.limit.problem(time.Now()) }

var _ hv.OtherGuestCounter = (*Driver)(nil)

// OtherMacOSGuests counts the guests that tart runs for other programs in this user's directory of tart, and in
// that of the driver.
func (d *Driver) OtherMacOSGuests() (count int) {
	homes := []string{d.opts.Home}
	if user, err := userHome(); err == nil && user != d.opts.Home {
		homes = append(homes, user)
	}
	for _, home := range homes {
		entries, _ := os.ReadDir(filepath.Join(home, vmsDir)) // a missing directory has none
		for _, e := range entries {
			dir := filepath.Join(home, vmsDir, e.Name())
			if (home != d.opts.Home || !exists(filepath.Join(dir, recordFile))) && runsMacOS(dir) {
				count++
			}
		}
	}
	return count
}

// runsMacOS reports whether tart runs a macOS guest from a directory.
func runsMacOS(dir string) bool {
	owner, err := cliproc.LockOwner(filepath.Join(dir, configFile))
	if err != nil || owner == 0 {
		return false
	}
	c, err := ReadBundleConfig(dir)
	return err != nil || c.OS == "" || c.OS == "darwin" // one with another content counts
}

// explainLimit adds what to do to a refusal by the number of guests, and records one that no guest explains.
func (m *machine) explainLimit(ctx context.Context, err error) error {
	if !errors.Is(err, errGuestLimit) {
		return err
	}
	running, listErr := m.driver.runsOtherGuest(ctx, m.id)
	switch {
	case listErr != nil:
		return errors.Join(err, listErr)
	case running:
		return fmt.Errorf("%w: Apple's license permits two on a Mac, those of other programs included; end one of them",
			err)
	}
	m.driver.limit.record(time.Now())
	return farm.MarkFailure(errors.New(limitProblem), farm.FailureLicense, "")
}

// runsOtherGuest reports whether a guest runs on this Mac besides one VM: of this driver or, as far as the
// process table tells, of another program.
func (d *Driver) runsOtherGuest(ctx context.Context, id string) (bool, error) {
	vms, err := d.List(ctx)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(vms, func(vm hv.VM) bool { return vm.ID != id && vm.Status == hv.Running }) {
		return true, nil
	}
	names, err := d.processNames(ctx)
	if err != nil {
		d.log.WarnContext(ctx, "guests of other programs cannot be seen", "error", err)
	}
	return hasGuestProcess(names), nil
}

// processNames returns the programs of all processes of this Mac, one a line.
func (d *Driver) processNames(ctx context.Context) (string, error) {
	ps, err := FindProgram("ps")
	if err != nil {
		return "", err
	}
	r, err := cliproc.Run(ctx, cliproc.Command{
		Path: ps, Args: []string{"-axo", "comm="}, Env: d.cli.env, Timeout: probeTimeout, KeepBytes: 1 << 20,
	})
	return string(r.Stdout), err
}

// hasGuestProcess reports whether a guest's process is among the programs of processes, one a line.
func hasGuestProcess(names string) bool {
	for line := range strings.Lines(names) {
		if path.Base(strings.TrimSpace(line)) == guestProcess {
			return true
		}
	}
	return false
}
