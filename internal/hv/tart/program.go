package tart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

const (
	probeTimeout = 10 * time.Second
	minMajor     = 2 // oldest version with exec and the resolver agent: 2.28
	minMinor     = 28
)

// FindProgram returns the path of an executable in PATH or where Homebrew installs it.
func FindProgram(name string) (string, error) { return cliproc.FindProgram(name) }

// program is the installed tart with the environment that it runs in.
type program struct {
	path string
	env  []string
}

// newProgram finds tart.
func newProgram(o Options) (program, error) {
	path := o.Program
	if path == "" {
		var err error
		if path, err = FindProgram("tart"); err != nil {
			return program{}, err
		}
	}
	return program{path: path, env: []string{
		"PATH=" + cliproc.SearchPath(),
		"HOME=" + os.Getenv("HOME"),
		"TMPDIR=" + os.TempDir(),
		"TART_HOME=" + o.Home,
		"TART_NO_AUTO_PRUNE=1",
	}}, nil
}

// command returns a call of tart.
func (p program) command(timeout time.Duration, args ...string) cliproc.Command {
	return cliproc.Command{Path: p.path, Args: args, Env: p.env, Timeout: timeout}
}

// run calls tart and returns what it prints.
func (p program) run(ctx context.Context, timeout time.Duration, args ...string) (string, error) {
	r, err := cliproc.Run(ctx, p.command(timeout, args...))
	return strings.TrimSpace(string(r.Stdout)), err
}

var versionPattern = regexp.MustCompile(`^([0-9]{1,4})\.([0-9]{1,4})(\.[0-9A-Za-z.-]{1,32})?$`)

// checkVersion returns an error for a version that lacks what the driver needs.
func checkVersion(version string) error {
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return fmt.Errorf("tart --version printed %.80q, want a version such as 2.35.0", version)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < minMajor || major == minMajor && minor < minMinor {
		return fmt.Errorf("tart %s is too old: install %d.%d or later", version, minMajor, minMinor)
	}
	return nil
}

// probe describes this Mac.
func (d *Driver) probe(ctx context.Context) (hv.Host, error) {
	version, err := d.cli.run(ctx, probeTimeout, "--version")
	if err == nil {
		err = checkVersion(version)
	}
	if err != nil {
		return hv.Host{}, fmt.Errorf("hypervisor: %w", err)
	}
	h := hv.Host{
		Driver: "tart", Version: version, Accelerator: "vz", Machine: "VirtualMac2,1", CPU: "host", Arch: "arm64",
		Capabilities: []hv.Capability{
			hv.CanMacOS, hv.CanBoot, hv.CanForward, hv.CanPersist, hv.CanSave, hv.CanRestart, hv.CanResize, hv.CanVNC,
			hv.CanConsole, hv.CanSetMAC,
		},
	}
	if d.opts.Bridge != "" {
		h.Capabilities = append(h.Capabilities, hv.CanBridge)
	}
	if err := checkSoftnet(); err == nil {
		h.Capabilities = append(h.Capabilities, hv.CanNetworkHost)
	} else {
		d.log.InfoContext(ctx, "network mode host is not available", "reason", err)
	}
	slices.Sort(h.Capabilities)
	return h, nil
}

// checkSoftnet returns why tart could not use softnet, which the network mode host needs.
func checkSoftnet() error {
	path, err := FindProgram("softnet")
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	isSetUIDRoot := ok && stat.Uid == 0 && info.Mode()&os.ModeSetuid != 0
	if !isSetUIDRoot && os.Geteuid() != 0 {
		return errors.New("softnet is not set-uid root: run it once with sudo, or chown root and chmod u+s " + path)
	}
	return nil
}
