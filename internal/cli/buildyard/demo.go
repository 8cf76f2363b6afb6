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
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// DemoOptions are the options of the demo.
type DemoOptions struct {
	Driver        string // qemu or sim
	GuestDisk     string // disk of the guest, qcow2; unused by the driver sim
	GuestUser     string // of the guest
	GuestPassword string
	ScannerPath   string // imagescan program that scans the template; "": no scan
	ExitWhenDone  bool   // exit without waiting for the user
	DataDir       string // data directory; "": a temporary one that is removed
	Out, Err      io.Writer
}

func demoCommand(streams Streams) *cobra.Command {
	o := DemoOptions{Out: streams.Out, Err: streams.Err}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a cloud on this machine with one VM",
		Long: `demo runs a complete cloud on this machine: it starts controller and registry, joins this machine as a
node, pushes a guest as template demo:v1, starts an instance that runs a script, prints the script's
output and how to reach the VM, saves the running VM as demo:v2, starts that version, verifies its
memory and disk, and terminates it. A second node then starts demo:v1 before it has pulled all of it
(not with the driver sim). Then the cloud keeps running until it is interrupted, unless --once is set.

From a checkout, "make demo" builds the guest and runs this command.`,
		Example: `  buildyard demo --guest demo.qcow2 --user demo --password secret
  buildyard demo --driver sim --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Driver, "driver", "qemu", "hypervisor driver of the node: qemu, or sim without QEMU")
	fs.StringVar(&o.GuestDisk, "guest", "", "disk image (qcow2) of the guest for demo:v1")
	fs.StringVar(&o.GuestUser, "user", "demo", "user inside the guest")
	fs.StringVar(&o.GuestPassword, "password", "", "password of that user")
	fs.StringVar(&o.ScannerPath, "scanner", "", "imagescan program that scans the template (not with the driver sim)")
	fs.BoolVar(&o.ExitWhenDone, "once", false, "exit after the instances have terminated")
	fs.StringVar(&o.DataDir, "data-dir", "", "data directory (default: a temporary directory, removed at the end)")
	return cmd
}

// demo is a run of the demo.
type demo struct {
	DemoOptions
	service          *ControllerService
	nodes            []*buildnode.Node // of this machine: what they run ends with the demo
	stopNodes        []func() error
	nodeLog          nodeLog
	controllerClient *client.Controller
	templateID       string
	nonce            string
	savedRun         demoRun // the instance that boots and is saved
	hypervisorPID    int     // of the running hypervisor process
	stepStartedAt    time.Time
}

func (o DemoOptions) run(ctx context.Context) (err error) {
	if o.Driver == "qemu" && o.GuestDisk == "" {
		return errors.New("--guest is required: the disk of the guest (built by guest/build.sh), or use --driver sim")
	}
	if o.DataDir == "" {
		if o.DataDir, err = os.MkdirTemp("", "buildyard-demo-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(o.DataDir) }()
		if err := os.Chmod(o.DataDir, 0o755); err != nil {
			return err
		}
	}
	d := &demo{DemoOptions: o, nodeLog: nodeLog{w: o.Err}, nonce: rand.Text(), stepStartedAt: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return d.runSteps(ctx)
}

// printStep prints one finished step with its evidence and duration.
func (d *demo) printStep(step, format string, args ...any) {
	took := time.Since(d.stepStartedAt).Round(10 * time.Millisecond)
	d.stepStartedAt = time.Now()
	_, _ = fmt.Fprintf(d.Out, "ok %-9s %s (%s)\n", step, fmt.Sprintf(format, args...), took)
}

// openServices starts controller and registry on the usual ports, or on free ones when those are in
// use.
func (d *demo) openServices(ctx context.Context) error {
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	config.ControllerTable.AddFlags(fs)
	for flag, value := range map[string]string{
		"listen-addr": freeAddr(ctx, "127.0.0.1:8090"), "registry-listen-address": freeAddr(ctx, "127.0.0.1:8089"),
		"data-dir": filepath.Join(d.DataDir, "controller"), "registry-base-path": filepath.Join(d.DataDir, "registry"),
		"instance-time-out": "1s", "log-level": "warn",
	} {
		if err := fs.Set(flag, value); err != nil {
			return err
		}
	}
	d.service = &ControllerService{Stderr: d.Err, WithRegistry: true}
	if err := d.service.ParseFlags(config.Sources{Flags: fs}); err != nil {
		return err
	}
	if err := d.service.Open(ctx); err != nil {
		return errors.Join(err, d.service.Close())
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

// joinNode joins this machine as the demo's node.
func (d *demo) joinNode(ctx context.Context) error {
	if err := d.startNode(ctx, "", cache.LazyOff); err != nil {
		return err
	}
	n, err := d.awaitNode(ctx, "")
	if err != nil {
		return err
	}
	d.printStep("node", "%s joined: %s %s, accelerator %s, %d cores, %d GiB", n.NodeName, n.AnkaVersion.Product,
		n.AnkaVersion.Version, n.AnkaVersion.Build, n.CPUCount, n.RAM)
	return nil
}

// awaitNode waits until the node of a name is there; "": any.
func (d *demo) awaitNode(ctx context.Context, name string) (node api.Node, err error) {
	err = d.pollUntil(ctx, 30*time.Second, "the node to join", func() (bool, error) {
		nodes, err := d.controllerClient.Nodes(ctx, client.ListOptions{})
		for _, node = range nodes {
			if (name == "" || node.NodeName == name) && node.State == "Active" && node.AnkaVersion.Product != "" {
				return true, nil
			}
		}
		return false, err
	})
	return node, err
}

// pushGuest pushes the guest into the registry as template demo, tag v1.
func (d *demo) pushGuest(ctx context.Context) error {
	store, err := transfer.New(transfer.Options{BaseURL: d.service.RegistryURL()})
	if err != nil {
		return err
	}
	disk, err := d.guestDisk()
	if err != nil {
		return err
	}
	d.templateID = uuid.NewString()
	result, err := store.Push(ctx, transfer.PushOptions{
		Request: demoTemplate(d.templateID),
		Files:   []transfer.PushFile{{Name: demoDisk, Kind: api.FileDisk, Disk: &disk}},
	})
	if err != nil {
		return fmt.Errorf("push the guest: %w", err)
	}
	detail, err := d.controllerClient.Template(ctx, d.templateID)
	if err != nil {
		return err
	}
	d.printStep("template", "demo:v1 is in the registry: %d bytes, content %.12s", detail.Size, result.ContentID)
	return nil
}

const demoDisk = "disk.img"

// guestDisk returns the guest's disk; the simulated node accepts any file.
func (d *demo) guestDisk() (diskfile.Disk, error) {
	if d.Driver != "sim" {
		return diskfile.Disk{Path: d.GuestDisk, Format: "qcow2"}, nil
	}
	path := filepath.Join(d.DataDir, demoDisk)
	return diskfile.Disk{Path: path, Format: "raw"}, os.WriteFile(path, []byte(rand.Text()), 0o600)
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
		banner, err := readGreeting(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(rule.HostPort)))
		if err != nil {
			return fmt.Errorf("the guest's SSH server does not answer: %w", err)
		}
		d.printStep("ssh", "ssh -p %d %s@127.0.0.1 (password %s) answers %q", rule.HostPort, d.GuestUser,
			d.GuestPassword, banner)
		return nil
	}
	return errors.New("the instance has no port rule for guest port 22")
}

// readGreeting reads the first line that a server sends.
func readGreeting(ctx context.Context, addr string) (string, error) {
	var last error
	for range 20 {
		line, err := readFirstLine(ctx, addr)
		if err == nil {
			return line, nil
		}
		last = err
		if !sleep(ctx, 500*time.Millisecond) {
			return "", ctx.Err()
		}
	}
	return "", last
}

func readFirstLine(ctx context.Context, addr string) (string, error) {
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

// terminateInstance terminates the instance and verifies that no process and no record is left.
func (d *demo) terminateInstance(ctx context.Context) error {
	list, err := d.controllerClient.Instances(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	for _, item := range list {
		if err := d.controllerClient.Terminate(ctx, item.InstanceID); err != nil {
			return err
		}
	}
	if err := d.awaitEmpty(ctx); err != nil {
		return err
	}
	if d.Driver == "sim" {
		d.printStep("ended", "no VM and no record left")
	} else {
		d.printStep("ended", "QEMU process %d ended, no VM and no record left", d.hypervisorPID)
	}
	return nil
}

// awaitEmpty waits until no VM, no hypervisor process and no record is left.
func (d *demo) awaitEmpty(ctx context.Context) error {
	return d.pollUntil(ctx, time.Minute, "the instance to end", func() (bool, error) {
		list, err := d.controllerClient.Instances(ctx, client.ListOptions{})
		if err != nil {
			return false, err
		}
		left, err := d.listVMs(ctx)
		return len(list) == 0 && len(left) == 0 && !processExists(d.hypervisorPID), err
	})
}

// processExists reports whether a process of that id exists.
func processExists(pid int) bool {
	if pid == 0 {
		return false
	}
	_, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid)))
	return err == nil
}

// pollUntil polls until so returns true.
func (d *demo) pollUntil(ctx context.Context, limit time.Duration, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %s for %s", limit, what))
	defer cancel()
	for {
		ok, err := so()
		if err != nil || ok {
			return err
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
}

// sleep waits, and reports whether the context is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
