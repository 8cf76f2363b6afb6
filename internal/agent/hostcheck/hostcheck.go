// Package hostcheck checks whether a host is set up to run VMs unattended, and names the remedy of each problem.
//
// It changes nothing and needs no privileges. It does not check the hypervisor: its driver does. The forms of the
// outputs that it reads are from documentation; they were not recorded on a Mac.
//
// Invariant: a check that cannot be carried out is unknown, never ok.
package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/bytesize"
)

// Outcome is the result of a check.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"
	Problem Outcome = "problem"
	Unknown Outcome = "unknown" // the check could not be carried out
)

// Result is the result of one check. Its JSON form is a part of the output of "buildnode service status".
type Result struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy,omitempty"` // what to do; "" when the outcome is ok
}

// Options describe the host.
type Options struct {
	OS      string // as GOOS
	User    string // that the agent runs as
	Dir     string // absolute path of the node's data directory
	Reserve bytesize.DiskReserve
}

// finding is what a check found. Without a remedy it has that of the table.
type finding struct {
	outcome        Outcome
	detail, remedy string
}

// check is a row of the table of checks.
type check struct {
	name    string
	systems []string // GOOS values
	find    func(context.Context, Options) finding
	remedy  string
}

var (
	macOS = []string{"darwin"}
	both  = []string{"darwin", "linux"}
)

// checks are all checks, in the order of the output.
var checks = []check{
	{
		"disk space", both, findDiskSpace,
		"free space on this disk, or lower the reserve: buildnode join URL --reserve-space SIZE",
	},
	{
		"automatic login", macOS, findAutoLogin,
		"turn on automatic login of this user in System Settings > Users & Groups (FileVault must be off)",
	},
	{
		"login keychain", macOS, findKeychain,
		"log in on the Mac's screen, or run: security unlock-keychain login.keychain",
	},
	{"sleep", macOS, findSleep, "sudo pmset -a sleep 0 disksleep 0"},
	{
		"DHCP lease time", macOS, findLeaseTime,
		"sudo defaults write /Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist bootpd " +
			"-dict DHCPLeaseTimeSecs -int 600",
	},
	{"softnet", macOS, findSoftnet, ""},
	{
		"local network access", macOS, findLocalNetwork,
		"sudo defaults write com.apple.network.local-network AllowedEthernetLocalNetworkAddresses -array 10.0.0.0/8 " +
			"172.16.0.0/12 192.168.0.0/16; the same with AllowedWiFiLocalNetworkAddresses; then restart the Mac",
	},
}

// Run carries out the checks that apply to the host.
func Run(ctx context.Context, o Options) []Result {
	results := []Result{}
	for _, c := range checks {
		if !slices.Contains(c.systems, o.OS) {
			continue
		}
		found := c.find(ctx, o)
		r := Result{Name: c.name, Outcome: found.outcome, Detail: found.detail}
		if r.Outcome != OK {
			r.Remedy = found.remedy
		}
		if r.Outcome != OK && r.Remedy == "" {
			r.Remedy = c.remedy
		}
		results = append(results, r)
	}
	return results
}

const (
	commandTimeout = 20 * time.Second
	maxOutput      = 64 << 10 // bytes of a command's output that are read
)

// commandResult is the result of a program that was started.
type commandResult struct {
	code   int    // exit code; -1: it was killed
	output string // standard output and standard error
}

// errTimeout is the error of a program that did not end.
var errTimeout = errors.New("the command did not end within " + commandTimeout.String())

// run runs a program with untranslated output. An error means that it did not end in time or
// could not be started.
func run(ctx context.Context, program string, args ...string) (commandResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTimeout, errTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	var out limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return commandResult{}, fmt.Errorf("%s: %w", program, cause)
	}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return commandResult{}, err
	}
	return commandResult{cmd.ProcessState.ExitCode(), string(out.data)}, nil
}

// limitedBuffer keeps the first maxOutput bytes.
type limitedBuffer struct{ data []byte }

// Write implements io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(len(p), maxOutput-len(b.data))]...)
	return len(p), nil
}
