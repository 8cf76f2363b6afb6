package buildyard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/transfer"
)

// DemoOptions are the options of the demo.
type DemoOptions struct {
	Driver   string // qemu or sim
	Guest    string // disk of the guest, qcow2; unused by the driver sim
	User     string // of the guest
	Password string
	Scanner  string // imagescan program that scans the template; "": no scan
	Once     bool   // exit without waiting for the user
	Dir      string // data directory; "": a temporary one that is removed
	Out, Err io.Writer
}

func demoCommand(streams Streams) *cobra.Command {
	o := DemoOptions{Out: streams.Out, Err: streams.Err}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a cloud on this machine with one VM",
		Long: `demo runs a complete cloud on this machine: it starts controller and registry, joins this machine as a
node, pushes a guest as template demo:v1, starts an instance that runs a script, prints the script's
output and how to reach the VM, saves the running VM as demo:v2, starts that version, verifies its
memory and disk, and terminates it. Then it keeps running until it is interrupted, unless --once is
set.

From a checkout, "make demo" builds the guest and runs this command.`,
		Example: `  buildyard demo --guest demo.qcow2 --user demo --password secret
  buildyard demo --driver sim --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Driver, "driver", "qemu", "hypervisor driver of the node: qemu, or sim without QEMU")
	fs.StringVar(&o.Guest, "guest", "", "disk image (qcow2) of the guest for demo:v1")
	fs.StringVar(&o.User, "user", "demo", "user inside the guest")
	fs.StringVar(&o.Password, "password", "", "password of that user")
	fs.StringVar(&o.Scanner, "scanner", "", "imagescan program that scans the template (not with the driver sim)")
	fs.BoolVar(&o.Once, "once", false, "exit after the instances have terminated")
	fs.StringVar(&o.Dir, "data-dir", "", "data directory (default: a temporary directory, removed at the end)")
	return cmd
}

// demo is a run of the demo.
type demo struct {
	DemoOptions
	services *ControllerService
	node     *buildnode.Node
	nodeLog  nodeLog
	api      *client.Controller
	template string
	nonce    string
	source   demoRun // the instance that boots and is saved
	pid      int     // of the running hypervisor process
	step     time.Time
}

func (o DemoOptions) run(ctx context.Context) (err error) {
	if o.Driver == "qemu" && o.Guest == "" {
		return errors.New("--guest is required: the disk of the guest (built by guest/build.sh), or use --driver sim")
	}
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "buildyard-demo-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(o.Dir) }()
		if err := os.Chmod(o.Dir, 0o755); err != nil {
			return err
		}
	}
	d := &demo{DemoOptions: o, nodeLog: nodeLog{out: o.Err}, nonce: rand.Text(), step: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return d.play(ctx)
}

// ok prints one finished step with its evidence and duration.
func (d *demo) ok(step, format string, args ...any) {
	took := time.Since(d.step).Round(10 * time.Millisecond)
	d.step = time.Now()
	_, _ = fmt.Fprintf(d.Out, "ok %-9s %s (%s)\n", step, fmt.Sprintf(format, args...), took)
}

// openServices starts controller and registry on the usual ports, or on free ones when those are in
// use.
func (d *demo) openServices(ctx context.Context) error {
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	config.ControllerTable.AddFlags(fs)
	for flag, value := range map[string]string{
		"listen-addr": freeAddr(ctx, "127.0.0.1:8090"), "registry-listen-address": freeAddr(ctx, "127.0.0.1:8089"),
		"data-dir": filepath.Join(d.Dir, "controller"), "registry-base-path": filepath.Join(d.Dir, "registry"),
		"instance-time-out": "1s", "log-level": "warn",
	} {
		if err := fs.Set(flag, value); err != nil {
			return err
		}
	}
	d.services = &ControllerService{Stderr: d.Err, WithRegistry: true}
	if err := d.services.ParseFlags(config.Sources{Flags: fs}); err != nil {
		return err
	}
	if err := d.services.Open(ctx); err != nil {
		return errors.Join(err, d.services.Close())
	}
	return nil
}

// freeAddr returns the wanted address, or one with a free port when it is in use.
func freeAddr(ctx context.Context, want string) string {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", want)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close()
	return want
}

func (d *demo) awaitNode(ctx context.Context) error {
	var nodes []api.Node
	err := d.await(ctx, 30*time.Second, "the node to join", func() (ok bool, err error) {
		nodes, err = d.api.Nodes(ctx, client.ListOptions{})
		return len(nodes) == 1 && nodes[0].State == "Active" && nodes[0].AnkaVersion.Product != "", err
	})
	if err != nil {
		return err
	}
	n := nodes[0]
	d.ok("node", "%s joined: %s %s, accelerator %s, %d cores, %d GiB", n.NodeName, n.AnkaVersion.Product,
		n.AnkaVersion.Version, n.AnkaVersion.Build, n.CPUCount, n.RAM)
	return nil
}

// push pushes the guest into the registry as template demo, tag v1.
func (d *demo) push(ctx context.Context) error {
	store, err := transfer.New(transfer.Options{BaseURL: d.services.RegistryURL()})
	if err != nil {
		return err
	}
	disk, err := d.disk()
	if err != nil {
		return err
	}
	d.template = uuid.NewString()
	result, err := store.Push(ctx, transfer.PushOptions{
		Request: demoTemplate(d.template),
		Files:   []transfer.PushFile{{Name: demoDisk, Kind: api.FileDisk, Disk: &disk}},
	})
	if err != nil {
		return fmt.Errorf("push the guest: %w", err)
	}
	detail, err := d.api.Template(ctx, d.template)
	if err != nil {
		return err
	}
	d.ok("template", "demo:v1 is in the registry: %d bytes, content %.12s", detail.Size, result.ContentID)
	return nil
}

const demoDisk = "disk.img"

// disk returns the guest's disk; the simulated node accepts any file.
func (d *demo) disk() (transfer.Disk, error) {
	if d.Driver != "sim" {
		return transfer.Disk{Path: d.Guest, Format: "qcow2"}, nil
	}
	path := filepath.Join(d.Dir, demoDisk)
	return transfer.Disk{Path: path, Format: "raw"}, os.WriteFile(path, []byte(rand.Text()), 0o600)
}

// showLogin shows how to log in, and that the guest's SSH server answers there.
func (d *demo) showLogin(ctx context.Context, inst api.Instance) error {
	if d.Driver == "sim" {
		return nil
	}
	for _, rule := range inst.VMInfo.PortForwarding {
		if rule.GuestPort != 22 {
			continue
		}
		banner, err := greeting(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(rule.HostPort)))
		if err != nil {
			return fmt.Errorf("the guest's SSH server does not answer: %w", err)
		}
		d.ok("ssh", "ssh -p %d %s@127.0.0.1 (password %s) answers %q", rule.HostPort, d.User, d.Password, banner)
		return nil
	}
	return errors.New("the instance has no port rule for guest port 22")
}

// greeting reads the first line that a server sends.
func greeting(ctx context.Context, addr string) (string, error) {
	var last error
	for range 20 {
		line, err := firstLine(ctx, addr)
		if err == nil {
			return line, nil
		}
		last = err
		if !pause(ctx, 500*time.Millisecond) {
			return "", ctx.Err()
		}
	}
	return "", last
}

func firstLine(ctx context.Context, addr string) (string, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	buf := make([]byte, 255)
	n, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\r\n")
	return line, nil
}

// endInstance terminates the instance and verifies that no process and no record is left.
func (d *demo) endInstance(ctx context.Context) error {
	list, err := d.api.Instances(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	for _, item := range list {
		if err := d.api.Terminate(ctx, item.InstanceID); err != nil {
			return err
		}
	}
	if err := d.awaitEmpty(ctx); err != nil {
		return err
	}
	if d.Driver == "sim" {
		d.ok("ended", "no VM and no record left")
	} else {
		d.ok("ended", "QEMU process %d ended, no VM and no record left", d.pid)
	}
	return nil
}

// awaitEmpty waits until no VM, no hypervisor process and no record is left.
func (d *demo) awaitEmpty(ctx context.Context) error {
	return d.await(ctx, time.Minute, "the instance to end", func() (bool, error) {
		list, err := d.api.Instances(ctx, client.ListOptions{})
		if err != nil {
			return false, err
		}
		left, err := d.vms(ctx)
		return len(list) == 0 && left == 0 && !alive(d.pid), err
	})
}

// alive reports whether a process of that id exists.
func alive(pid int) bool {
	if pid == 0 {
		return false
	}
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return err == nil
}

// await polls until so returns true.
func (d *demo) await(ctx context.Context, limit time.Duration, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %s for %s", limit, what))
	defer cancel()
	for {
		ok, err := so()
		if err != nil || ok {
			return err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// pause waits, and reports whether the context is still active.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
