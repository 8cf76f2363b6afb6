package buildnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/anka"
	"github.com/buildyard/buildyard/internal/hv/driverpair"
	"github.com/buildyard/buildyard/internal/hv/qemu"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/hv/tart"
	"github.com/buildyard/buildyard/internal/selfexec"
)

// The drivers of a node.
const (
	DriverAuto = "auto" // what is installed: one for macOS guests, one for others, or both
	DriverQEMU = "qemu"
	DriverTart = "tart" // macOS guests only
	DriverAnka = "anka" // macOS guests only
	DriverSim  = "sim"
)

// drivers opens each driver that a node can be told to use.
var drivers = map[string]func(context.Context, NodeOptions, datadir.Identity) (hv.Driver, error){
	DriverAuto: openInstalled, DriverQEMU: openQEMU, DriverTart: openTart, DriverAnka: openAnka, DriverSim: openSim,
}

// driverNames are the values of --driver, the default first.
var driverNames = []string{DriverAuto, DriverQEMU, DriverTart, DriverAnka, DriverSim}

func openDriver(ctx context.Context, o NodeOptions, identity datadir.Identity) (hv.Driver, error) {
	open := drivers[o.Driver]
	if open == nil {
		return nil, cli.Usage(fmt.Errorf("invalid --driver %s: want one of %s", o.Driver,
			strings.Join(driverNames, ", ")))
	}
	if o.Logger == nil { // of disjoin
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return open(ctx, o, identity)
}

// openInstalled opens the drivers whose hypervisors are installed, and logs the choice.
func openInstalled(ctx context.Context, o NodeOptions, identity datadir.Identity) (hv.Driver, error) {
	name, mac, macErr := openInstalledMac(ctx, o, identity)
	pc, pcErr := openQEMU(ctx, o, identity)
	if macErr == nil && pcErr == nil {
		pcErr = checkSameArch(ctx, mac, pc)
		if pcErr != nil {
			pcErr = errors.Join(pcErr, closeDriver(pc))
		}
	}
	unused := map[string]error{o.DataDir.TemplatesDir(): pcErr}
	for driver, dir := range map[string]string{DriverTart: o.DataDir.TartHome(), DriverAnka: o.DataDir.AnkaDir()} {
		if driver != name {
			unused[filepath.Join(dir, "vms")] = cmp.Or(macErr, fmt.Errorf("%s is used instead of %s", name, driver))
		}
	}
	if err := checkUnusedDirs(unused); err != nil {
		if macErr == nil {
			err = errors.Join(err, closeDriver(mac))
		}
		if pcErr == nil {
			err = errors.Join(err, closeDriver(pc))
		}
		return nil, err
	}
	switch {
	case macErr == nil && pcErr == nil:
		o.Logger.InfoContext(ctx, "drivers chosen", "driver", name+", "+DriverQEMU,
			"reason", "both are installed; "+name+" runs macOS guests, qemu all others")
		return driverpair.New(mac, pc), nil
	case macErr == nil:
		o.Logger.InfoContext(ctx, "driver chosen", "driver", name, "reason", "qemu cannot be used: "+pcErr.Error())
		return mac, nil
	case pcErr == nil:
		o.Logger.InfoContext(ctx, "driver chosen", "driver", DriverQEMU,
			"reason", "no driver of macOS guests can be used: "+macErr.Error())
		return pc, nil
	}
	return nil, fmt.Errorf("no hypervisor can be used; install QEMU, or tart or anka for macOS guests: %w; %w", pcErr,
		macErr)
}

// openInstalledMac opens the driver of macOS guests that is installed: tart, otherwise anka.
func openInstalledMac(ctx context.Context, o NodeOptions, identity datadir.Identity) (string, hv.Driver, error) {
	d, tartErr := openTart(ctx, o, identity)
	if tartErr == nil {
		return DriverTart, d, nil
	}
	d, ankaErr := openAnka(ctx, o, identity)
	if ankaErr == nil {
		o.Logger.InfoContext(ctx, "anka is used for macOS guests", "reason", "tart cannot be used: "+tartErr.Error())
		return DriverAnka, d, nil
	}
	return "", nil, errors.Join(tartErr, ankaErr)
}

// checkUnusedDirs returns an error if a directory has VMs and the driver that runs them cannot be used: they
// would be taken for lost, and nothing would end them.
func checkUnusedDirs(failures map[string]error) error {
	for dir, failure := range failures {
		if failure == nil {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			id, isRecord := strings.CutSuffix(e.Name(), ".json") // anka has a file for each VM, the others a directory
			if (isRecord || e.IsDir()) && hv.ValidID(id) {
				return fmt.Errorf("%s has VMs, such as %s, whose driver cannot be used; mend that, or name the driver "+
					"by --driver: %w", dir, id, failure)
			}
		}
	}
	return nil
}

// checkSameArch returns why two drivers cannot serve one node: a node has one architecture.
func checkSameArch(ctx context.Context, mac, pc hv.Driver) error {
	a, err := mac.Describe(ctx)
	if err != nil {
		return err
	}
	b, err := pc.Describe(ctx)
	if err != nil {
		return err
	}
	if a.Arch != b.Arch {
		return fmt.Errorf("its guests would be %s on a node of %s; use --driver qemu for them", b.Arch, a.Arch)
	}
	return nil
}

// closeDriver closes a driver that is not used.
func closeDriver(d hv.Driver) error {
	if c, ok := d.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func openQEMU(ctx context.Context, o NodeOptions, identity datadir.Identity) (hv.Driver, error) {
	if ip := net.ParseIP(o.VNCListenAddr); o.VNCListenAddr != "" && ip.To4() == nil {
		return nil, cli.Usage(fmt.Errorf(
			"invalid --vnc-listen %s: want an IPv4 address of this host, such as 127.0.0.1 or 0.0.0.0",
			o.VNCListenAddr))
	}
	vlans, err := vlansOf(identity, needUplink)
	if err != nil {
		return nil, err
	}
	return qemu.Open(ctx, qemu.Options{
		Dir: o.DataDir.TemplatesDir(), RunAs: o.QEMUUser, RequireIsolation: o.RequireIsolation, Bridge: o.Bridge,
		VLANs:       vlans,
		Uplink:      identity.VLANUplinkDevice,
		UnsafeCache: o.IgnoreFlushes, VNCListen: o.VNCListenAddr, Logger: o.Logger,
	})
}

// openTart opens the driver of tart.
func openTart(ctx context.Context, o NodeOptions, _ datadir.Identity) (hv.Driver, error) {
	self, err := selfexec.Path()
	if err != nil {
		return nil, err
	}
	password, err := readGuestPassword(o.GuestPasswordFile)
	if err != nil {
		return nil, err
	}
	return tart.Open(ctx, tart.Options{
		Home: o.DataDir.TartHome(), Bridge: o.Bridge, GuestUser: o.GuestUser, GuestPassword: auth.NewSecret(password),
		VNCListen: o.VNCListenAddr, Forwarder: []string{self, forwardVerb}, Logger: o.Logger,
	})
}

// openAnka opens the driver of anka. Its VLANs are those of the interface of --bridge.
func openAnka(ctx context.Context, o NodeOptions, identity datadir.Identity) (hv.Driver, error) {
	vlans, err := vlansOf(identity, noUplink)
	if err != nil {
		return nil, err
	}
	for id, bridge := range vlans {
		if bridge != "" && bridge != o.Bridge {
			return nil, cli.Usage(fmt.Errorf(
				"--vlan %d=%s: anka has VLANs only on the interface of --bridge, which is %q", id, bridge, o.Bridge))
		}
	}
	return anka.Open(ctx, anka.Options{
		Dir: o.DataDir.AnkaDir(), Bridge: o.Bridge, VLANs: slices.Sorted(maps.Keys(vlans)), Logger: o.Logger,
	})
}

const maxPasswordBytes = 256 // of the password of a guest's user

// readGuestPassword reads the first line of a file; "" without a file.
func readGuestPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--guest-password-file: %w", err)
	}
	password, _, _ := strings.Cut(string(text), "\n")
	if password = strings.TrimSuffix(password, "\r"); password == "" || len(password) > maxPasswordBytes {
		return "", fmt.Errorf("--guest-password-file %s: the first line has %d bytes: want 1-%d", path, len(password),
			maxPasswordBytes)
	}
	return password, nil
}

func openSim(_ context.Context, o NodeOptions, identity datadir.Identity) (hv.Driver, error) {
	vlans, err := vlansOf(identity, noUplink)
	if err != nil {
		return nil, err
	}
	return sim.New(sim.Options{Dir: o.DataDir.TemplatesDir(), VLANs: slices.Sorted(maps.Keys(vlans))})
}
