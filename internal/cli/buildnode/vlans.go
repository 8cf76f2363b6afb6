package buildnode

import (
	"errors"
	"maps"
	"slices"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/hv"
)

// vlanFlags are the VLAN options of join and run.
type vlanFlags struct {
	ids    []string
	uplink string
}

func (f *vlanFlags) add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.ids, "vlan", nil,
		"VLANs of guests: an ID with a bridge of this host, as 10=br10, or IDs and ranges, as 20,100-110, over "+
			"--vlan-uplink")
	fs.StringVar(&f.uplink, "vlan-uplink", "",
		"network device of this host for tagged frames; a bridge is created on it for each VLAN in use")
}

// applyTo replaces the node's settings by the given ones; a single empty ID removes all VLANs.
func (f *vlanFlags) applyTo(to *datadir.Identity) error {
	if f.ids != nil {
		to.VLANs = slices.DeleteFunc(f.ids, func(id string) bool { return id == "" })
	}
	if f.uplink != "" {
		to.VLANUplinkDevice = f.uplink
	}
	_, err := vlansOf(*to, needUplink)
	return err
}

// uplinkRule reports whether VLANs without a bridge need an uplink.
type uplinkRule bool

const (
	needUplink uplinkRule = true
	noUplink   uplinkRule = false // of simulated VMs
)

// vlansOf parses the VLANs that a node offers.
func vlansOf(id datadir.Identity, rule uplinkRule) (map[int]string, error) {
	vlans, err := hv.ParseVLANs(id.VLANs)
	if err != nil {
		return nil, cli.Usage(err)
	}
	if rule == needUplink && id.VLANUplinkDevice == "" && slices.Contains(slices.Collect(maps.Values(vlans)), "") {
		return nil,
			cli.Usage(
				errors.New("--vlan without a bridge requires --vlan-uplink, the network device for tagged frames"))
	}
	return vlans, nil
}
