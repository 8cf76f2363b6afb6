package anka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

const (
	probeTimeout = 20 * time.Second
	shortTimeout = 30 * time.Second // for commands that read or change settings
	cloneTimeout = 10 * time.Minute
	startTimeout = 2 * time.Minute
)

// program is the installed anka with the environment that it runs in.
type program struct {
	path       string
	env        []string
	transcript *transcript // of its commands; nil = none
}

// newProgram finds anka.
func newProgram(path string) (program, error) {
	if path == "" {
		var err error
		if path, err = cliproc.FindProgram("anka"); err != nil {
			return program{}, err
		}
	}
	env := []string{"PATH=" + cliproc.SearchPath()}
	for _, name := range []string{"HOME", "USER", "TMPDIR"} {
		if value, found := os.LookupEnv(name); found {
			env = append(env, name+"="+value)
		}
	}
	return program{path: path, env: env}, nil
}

// call is one command with a response.
type call struct {
	timeout time.Duration
	lock    *os.File // inherited by the program; nil = none
	args    []string
}

// ask runs a command and decodes the body of its response, unless into is nil. Of commands that only show
// something the transcript has those that failed.
func (p program) ask(ctx context.Context, c call, into any) error {
	r, err := p.run(ctx, c, into)
	if err != nil || c.args[0] != "show" {
		p.transcript.add(c.args, r, err)
	}
	return err
}

func (p program) run(ctx context.Context, c call, into any) (cliproc.Result, error) {
	r, err := cliproc.Run(ctx, cliproc.Command{
		Path: p.path, Args: append([]string{"-j"}, c.args...), Env: p.env, Timeout: c.timeout, Inherited: c.lock,
		KeepBytes: 4 << 20,
	})
	if e, failed := errors.AsType[*cliproc.Error](err); failed && e.Code < 0 {
		return r, fmt.Errorf("anka %s: %w", c.args[0], e)
	}
	body, responseErr := parseResponse(c.args[0], r.Stdout)
	if responseErr != nil {
		if _, isReported := errors.AsType[*Error](responseErr); !isReported && err != nil {
			return r, fmt.Errorf("anka %s: %w", c.args[0], err)
		}
		return r, responseErr
	}
	if err != nil {
		return r, fmt.Errorf("anka %s: %w", c.args[0], err)
	}
	if into == nil {
		return r, nil
	}
	return r, decode(c.args[0], body, into)
}

// do runs commands that change something, one after the other.
func (p program) do(ctx context.Context, commands ...[]string) error {
	for _, args := range commands {
		if err := p.ask(ctx, call{timeout: shortTimeout, args: args}, nil); err != nil {
			return err
		}
	}
	return nil
}

// show returns a VM of the library; code 3 if there is none.
func (p program) show(ctx context.Context, name string) (vm shownVM, err error) {
	err = p.ask(ctx, call{timeout: shortTimeout, args: []string{"show", name}}, &vm)
	return vm, err
}

// remove removes a VM of the library, whatever it does. It may be missing.
func (p program) remove(ctx context.Context, name string) error {
	if _, err := p.show(ctx, name); hasCode(err, codeNotFound) {
		return nil
	}
	// A VM that has failed can only be deleted after this; for a stopped one it may be an error.
	stopErr := p.ask(ctx, call{timeout: forceTimeout, args: []string{"stop", "--force", name}}, nil)
	err := p.ask(ctx, call{timeout: shortTimeout, args: []string{"delete", "--yes", name}}, nil)
	if err == nil || hasCode(err, codeNotFound) {
		return nil
	}
	return errors.Join(err, stopErr)
}

var versionPattern = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9A-Za-z-]{1,32}){0,3}$`)

// probe describes this Mac, without the license of anka.
func (d *Driver) probe(ctx context.Context) (hv.Host, error) {
	var version shownVersion
	if err := d.cli.ask(ctx, call{timeout: probeTimeout, args: []string{"version"}}, &version); err != nil {
		return hv.Host{}, err
	}
	if !versionPattern.MatchString(version.Version) {
		return hv.Host{}, fmt.Errorf("anka reports the version %.80q: want one such as 3.5.0; reinstall anka",
			version.Version)
	}
	h := hv.Host{
		Driver: "anka", Version: version.Version, Accelerator: "vz", Machine: "VirtualMac2,1", CPU: "host",
		Arch: "arm64",
		Capabilities: []hv.Capability{
			hv.CanMacOS, hv.CanBoot, hv.CanForward, hv.CanPersist, hv.CanRestart, hv.CanResize, hv.CanSetMAC,
			hv.CanNetworkHost, hv.CanDisconnect, hv.CanAnkaImages,
		},
	}
	if d.opts.Bridge != "" {
		h.Capabilities = append(h.Capabilities, hv.CanBridge)
		h.VLANs = slices.Clone(d.opts.VLANs)
	}
	slices.Sort(h.Capabilities)
	return h, nil
}
