package buildnode

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/fleet"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/clienttls"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/obs"
)

// SimOptions are the options of sim.
type SimOptions struct {
	*globals
	fleet.Options
	DataDir    string   // "": nothing is stored
	VLANs      []string // see hv.ParseVLANs
	USBDevices []string // name=number
	Certs      datadir.TLSFiles
}

func simCommand(g *globals) *cobra.Command {
	o := SimOptions{globals: g}
	token, key := tokenOptions{}, keyOptions{}
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run simulated nodes in one process",
		Long: `sim joins and runs nodes with simulated VMs, to load a controller or to try a cloud without a hypervisor.
Nothing is written to disk without --data-dir; with it, nodes and VMs survive restarts and crashes
of the process.

sim waits for a controller that cannot be reached. By default all operations take no time and never
fail. A duration is a time such as 2s or a random range such as 500ms-3s; shares are from 0 to 1.
The same --seed produces the same values.`,
		Example: `  buildyard node token | buildnode sim --nodes 100 --controller http://127.0.0.1:8090 --token-file -
  buildnode sim --nodes 3 --boot 2s --pull 5s --data-dir ./sim --controller http://127.0.0.1:8090 --token-file token
  buildnode sim --nodes 50 --boot 1s-4s --boot-failure 0.02 --death 0.1 --death-after 10s-5m \
    --controller http://127.0.0.1:8090 --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, own, err := readCredential(token, key, g.In)
			if err != nil {
				return err
			}
			o.JoinToken = text
			return o.run(cmd.Context(), own)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&o.NodeCount, "nodes", 1, "number of nodes")
	fs.StringVar(&o.ControllerURL, "controller", "", "URL of the controller")
	token.add(cmd)
	key.add(fs)
	addTLS(fs, &o.Certs, "controller")
	fs.StringVar(&o.NamePrefix, "name", "sim", "prefix of the nodes' names")
	fs.StringSliceVar(&o.Groups, "groups", nil, "node groups (names or IDs)")
	fs.IntVar(&o.Capacity, "capacity", 0, "maximum VMs per node (default: as set by the controller)")
	fs.BoolVar(&o.RealPulls, "real-pull", false, "pull real templates (requires --data-dir)")
	fs.StringVar(&o.DataDir, "data-dir", "", "data directory of nodes and VMs (default: in memory)")
	fs.StringVar(&o.Sim.License, "license", "", "license type of the simulated hypervisor (default: no license needed)")
	fs.StringVar(&o.Sim.Expires, "license-expires", "",
		"expiration date or time of that license, such as 2027-01-31 (default: never)")
	o.addDevices(cmd)
	o.addFailures(cmd)
	_ = cmd.MarkFlagRequired("controller")
	return cmd
}

// addDevices adds the options for what simulated nodes offer in addition to VMs.
func (o *SimOptions) addDevices(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.Sim.Arch, "arch", sim.DefaultArch, "architecture of each node: amd64 or arm64")
	fs.StringSliceVar(&o.VLANs, "vlan", nil, "VLANs of each node, as 10,100-110")
	fs.StringSliceVar(&o.USBDevices, "usb", nil,
		"USB devices of each node, as phone=2,key: claim names with the number of devices")
}

// addFailures adds the options for failures and durations of simulated VMs.
func (o *SimOptions) addFailures(cmd *cobra.Command) {
	fs := cmd.Flags()
	for _, f := range []struct {
		to         *sim.DurationRange
		name, help string
	}{
		{&o.Sim.Boot, "boot", "boot time of a VM"},
		{&o.Sim.Exec, "exec", "latency of a script in the guest"},
		{&o.Sim.Delete, "end", "time to delete a VM"},
		{&o.Sim.CrashAfter, "death-after", "time from the start of a VM until it crashes"},
		{&o.PullTime, "pull", "duration of a simulated pull"},
		{&o.UpdateTime, "update", "duration of a simulated agent update"},
		{&o.ReportDelay, "report-delay", "delay of each report to the controller"},
	} {
		fs.Var((*durationRange)(f.to), f.name, f.help+", a duration or a range such as 1s-3s (default 0s)")
	}
	for _, f := range []struct {
		to         *float64
		name, help string
	}{
		{&o.Sim.BootFailureRate, "boot-failure", "share of starts that fail, 0 to 1"},
		{&o.Sim.ExecFailureRate, "script-failure", "share of scripts whose result is lost, 0 to 1"},
		{&o.Sim.CrashRate, "death", "share of VMs that crash, 0 to 1"},
		{&o.UpdateFailureRate, "update-failure", "share of simulated agent updates that fail, 0 to 1"},
		{&o.PullFailureRate, "pull-failure", "share of simulated pulls that fail, 0 to 1"},
	} {
		fs.Float64Var(f.to, f.name, 0, f.help)
	}
	fs.Uint64Var(&o.Sim.Seed, "seed", 0, "seed of random values")
}

// durationRange is a flag for a duration or a range of them.
type durationRange sim.DurationRange

func (s *durationRange) String() string {
	switch {
	case *s == durationRange{}:
		return ""
	case s.Max <= s.Min:
		return s.Min.String()
	default:
		return s.Min.String() + "-" + s.Max.String()
	}
}

func (*durationRange) Type() string { return "time" }

// Set reads the flag.
func (s *durationRange) Set(text string) (err error) {
	first, last, ranged := strings.Cut(text, "-")
	if s.Min, err = time.ParseDuration(first); err == nil {
		s.Max = s.Min
		if ranged {
			s.Max, err = time.ParseDuration(last)
		}
	}
	if err != nil || s.Min < 0 || s.Max < s.Min {
		return fmt.Errorf("invalid duration %q: want a duration such as 2s, or a range such as 500ms-3s", text)
	}
	return nil
}

func (o *SimOptions) run(ctx context.Context, key *joinKey) error {
	log, err := obs.Logger(o.Err, o.logLevel, "sim")
	if err != nil {
		return cli.Usage(err)
	}
	f := o.Options
	if err := o.parseOffers(&f); err != nil {
		return err
	}
	if f.TLS, err = clienttls.Config(clienttls.Options(o.Certs)); err != nil {
		return err
	}
	if key != nil {
		if f.AuthorizeJoin, err = key.authorizer(
			datadir.Identity{ControllerURL: o.ControllerURL, TLS: o.Certs}); err != nil {
			return err
		}
	}
	relaxGC()
	f.DataDir, f.Logger, f.Version = o.DataDir, log, obs.FullVersion()
	return fleet.Run(ctx, f)
}

// maxSimUSB limits the devices with one name on a simulated node.
const maxSimUSB = 100

// parseOffers parses what the nodes offer in addition to their VMs.
func (o *SimOptions) parseOffers(to *fleet.Options) error {
	vlans, err := hv.ParseVLANs(o.VLANs)
	if err != nil {
		return cli.Usage(err)
	}
	to.Sim.VLANs = slices.Sorted(maps.Keys(vlans))
	for bus, item := range o.USBDevices {
		name, count, given := strings.Cut(item, "=")
		n := 1
		if given {
			n, err = strconv.Atoi(count)
		}
		if err != nil || name == "" || len(name) > 64 || n < 1 || n > maxSimUSB {
			return cli.Usage(fmt.Errorf("invalid --usb %q: want a claim name with 1 to %d devices, such as phone=2",
				item, maxSimUSB))
		}
		for port := range n {
			to.USBDevices = append(to.USBDevices,
				api.USBDevice{Name: name, Location: fmt.Sprintf("%d-%d", bus+1, port+1)})
		}
	}
	return nil
}

// Garbage collection of the memory of many nodes is rare, since they share the machine with the
// controller that they load, as long as they fit in a few GiB.
const (
	garbage  = 400     // percent of the live memory
	memories = 2 << 30 // bytes; above it, collections are more frequent
)

// relaxGC trades memory for processor time, unless the environment configures otherwise.
func relaxGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memories)
	}
}
