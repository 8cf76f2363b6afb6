package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// flowCases is the whole way of a template, in steps that build on each other.
var flowCases = []testCase{{"from import to termination", wholeFlow}}

// changedBytes are what the guest writes before the save.
const changedBytes = 512 << 10

// flow is the state of the whole flow.
type flow struct {
	*caseRun
	first, second *mac
	saved         api.Instance // that is saved as v2
	nonce         string       // that its guest has written
}

func wholeFlow(ctx context.Context, a *caseRun) error {
	f := &flow{caseRun: a, first: a.macs[0], second: a.macs[1], nonce: rand.Text()}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"import and push", f.importAndPush},
		{"start on the second node", f.startOnSecond},
		{"failing script", f.failingScript},
		{"save", f.saveAsV2},
		{"delta pull", f.pullDelta},
		{"end", f.end},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// importAndPush makes the template on the first node, from a VM that tart has created, and pushes it as v1.
func (f *flow) importAndPush(ctx context.Context) error {
	node := func(args ...string) (string, error) {
		return rig.Output(ctx, "", f.Path("buildnode"), append(args, "--data-dir", f.first.data)...)
	}
	shown, err := node(append([]string{"vm"}, f.importArgs("flow")...)...)
	if err != nil {
		return err
	}
	for _, want := range []string{"arm64", "macos", "tart"} {
		f.check(strings.Contains(shown, want), "the imported template shows %s", want)
	}
	pushed, err := node("registry", "--remote", f.cloud.Registry, "push", "flow", "--tag", "v1")
	if err != nil {
		return err
	}
	f.note("%s", pushed)
	f.template, err = f.templateNamed(ctx, "flow")
	f.check(err == nil && f.template != "", "the cloud has the template: %q, %v", f.template, err)
	return err
}

// sshPort is where the guests of the flow serve SSH, which the imported template forwards.
const sshPort = "22"

// startOnSecond starts v1 on the other node, which pulls all of it, and runs a script.
func (f *flow) startOnSecond(ctx context.Context) (err error) {
	if err := f.second.set("", "ssh", sshPort); err != nil {
		return err
	}
	before := f.registry.down.Load()
	script := fmt.Sprintf("echo out; echo err >&2; echo %s >kept; head -c %d /dev/urandom >changed; "+
		"sha256sum <changed", f.nonce, changedBytes)
	f.saved, err = f.run(ctx, client.StartRequest{NodeID: f.second.id, Tag: "v1"}, script, stateStarted)
	if err != nil {
		return err
	}
	crossed := f.registry.down.Load() - before
	f.figure("v1_bytes", float64(crossed))
	f.check(crossed > payloadBytes, "the pull of v1 moved %d bytes", crossed)
	s := f.saved.StartupScript
	f.check(s.ReturnCode == 0 && strings.HasPrefix(s.Stdout, "out\n") && s.Stderr == "err\n",
		"its script returned %d with outputs", s.ReturnCode)
	return f.checkForwarding(ctx)
}

// checkForwarding connects to the guest's SSH server by the port of the node.
func (f *flow) checkForwarding(ctx context.Context) error {
	in, err := f.api.Instance(ctx, f.saved.InstanceID)
	if err != nil || in.VMInfo == nil || len(in.VMInfo.PortForwarding) != 1 {
		return fmt.Errorf("the instance has not one forwarded port: %+v, %w", in.VMInfo, err)
	}
	port := in.VMInfo.PortForwarding[0].HostPort
	banner, err := readBanner(ctx, port)
	f.check(strings.HasPrefix(banner, "SSH-2.0-"), "host port %d reaches the guest's SSH server: %q, %v", port, banner,
		err)
	return nil
}

// readBanner returns what a server at a port of this host sends first.
func readBanner(ctx context.Context, port int) (string, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	banner := make([]byte, 64)
	n, err := c.Read(banner)
	return string(banner[:n]), err
}

// failingScript: the exit code of a script and both outputs are those of the guest, on the same node.
func (f *flow) failingScript(ctx context.Context) error {
	r := client.StartRequest{NodeID: f.second.id, Tag: "v1"}
	in, err := f.run(ctx, r, "echo before; echo wrong >&2; exit 7", stateError)
	if err != nil {
		return err
	}
	s := in.StartupScript
	f.check(s.ReturnCode == 7 && s.Stdout == "before\n" && s.Stderr == "wrong\n" &&
		in.Message == "startup script exit code 7", "a script that exits with 7 is %q", in.Message)
	return f.terminate(ctx, in.InstanceID)
}

// saveAsV2 saves the guest by an orderly stop; the instance then ends automatically.
func (f *flow) saveAsV2(ctx context.Context) error {
	if _, err := f.api.Save(ctx, client.SaveRequest{
		InstanceID: f.saved.InstanceID, Tag: "v2", TargetID: f.template,
		Suspend: new(true),
	}); err != nil {
		f.check(strings.Contains(err.Error(), "cannot save a running guest"), "a suspended save is refused: %v", err)
	} else {
		f.check(false, "a suspended save is refused")
	}
	before := f.registry.up.Load()
	request, err := f.save(ctx, f.saved.InstanceID, "v2")
	if err != nil {
		return err
	}
	s, err := f.awaitSaved(ctx, request)
	if err != nil {
		return err
	}
	if s.Status != "done" {
		return fmt.Errorf("the save is %s: %+v", s.Status, s.Error)
	}
	pushed := f.registry.up.Load() - before
	f.figure("v2_pushed_bytes", float64(pushed))
	f.check(pushed < deltaLimit, "the save pushed %d bytes", pushed)
	_, err = f.awaitState(ctx, f.saved.InstanceID, stateGone)
	return err
}

// deltaLimit is what may cross for a version whose guest has written changedBytes: the blocks around them, and the
// traffic of the protocol.
const deltaLimit = 3 * changedBytes

// pullDelta starts v2 on the first node, which has pulled v1, and reads there what the guest wrote.
func (f *flow) pullDelta(ctx context.Context) error {
	r := client.StartRequest{NodeID: f.first.id, Tag: "v1"}
	in, err := f.run(ctx, r, "ls", stateStarted)
	if err != nil {
		return err
	}
	f.check(in.StartupScript.Stdout == "", "v1 has no file of the guest that was saved: %q", in.StartupScript.Stdout)
	if err := f.terminate(ctx, in.InstanceID); err != nil {
		return err
	}
	before := f.registry.down.Load()
	r.Tag = "v2"
	in, err = f.run(ctx, r, "cat kept; sha256sum <changed", stateStarted)
	if err != nil {
		return err
	}
	crossed := f.registry.down.Load() - before
	f.figure("v2_pulled_bytes", float64(crossed))
	f.check(crossed > 0 && crossed < deltaLimit, "the pull of v2 moved %d bytes", crossed)
	_, sum, _ := strings.Cut(f.saved.StartupScript.Stdout, "\n")
	f.check(in.StartupScript.Stdout == f.nonce+"\n"+sum, "v2 has what was written before the save")
	return f.terminate(ctx, in.InstanceID)
}

// end checks that neither node has anything left, and that the VM that was imported is as it was.
func (f *flow) end(ctx context.Context) error {
	for _, m := range []*mac{f.first, f.second} {
		if err := m.clean(ctx); err != nil {
			return err
		}
	}
	f.note("nothing is left on either node")
	entries, err := os.ReadDir(filepath.Dir(f.base))
	f.check(err == nil && len(entries) == 1, "the VM that was imported is there")
	return f.second.unsetAll()
}
