package buildnode

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/usb"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
)

func usbCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usb",
		Short: "Manage USB devices of this node",
		Long: `usb claims devices of this host for VMs. A start requests a device by claim name or location, and gets a
free one. A running agent applies changed claims; a VM keeps its device. Claims require Linux.`,
		Args: cobra.NoArgs, RunE: showHelp,
	}
	cmd.AddCommand(usbList(g), usbClaim(g), usbRelease(g))
	return cmd
}

// USBOptions are the options of the usb commands.
type USBOptions struct {
	*globals
	DevicesDir string // directory of the device tree of the host
	Device     string
	Name       string
	Output     cli.Format
}

func newUSBOptions(g *globals) *USBOptions {
	return &USBOptions{globals: g, DevicesDir: usb.SysfsDevicesDir}
}

// claims returns the claims of the node, and creates its data directory.
func (o *USBOptions) claims() (usb.ClaimsFile, error) {
	at, err := o.openDataDir()
	if err != nil {
		return usb.ClaimsFile{}, err
	}
	return usb.At(at.USBClaimsFile()), at.Create()
}

func usbList(g *globals) *cobra.Command {
	o := newUSBOptions(g)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List USB devices and claims",
		Example: `  buildnode usb list
  buildnode usb list --output json | jq '.devices[] | select(.claim)'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.list() },
	}
	o.Output.Add(cmd)
	return cmd
}

// usbListing is the JSON output of usb list.
type usbListing struct {
	Devices []usbListed `json:"devices"`
	Claims  []usb.Claim `json:"claims"`
}

// usbListed is a device with the claim that covers it.
type usbListed struct {
	usb.Device
	Claim *usb.Claim `json:"claim,omitempty"`
}

func (o *USBOptions) list() error {
	claims, err := o.claims()
	if err != nil {
		return err
	}
	out := usbListing{Devices: []usbListed{}, Claims: []usb.Claim{}}
	list, err := claims.List()
	if err != nil {
		return err
	}
	out.Claims = append(out.Claims, list...)
	devices, err := usb.ReadDevices(o.DevicesDir)
	if err != nil && farm.CodeOf(err) != farm.CodeRefused {
		return err
	}
	for _, d := range devices {
		out.Devices = append(out.Devices, usbListed{d, usb.ClaimOf(list, d)})
	}
	if err != nil {
		_, _ = fmt.Fprintln(o.Err, err)
	}
	return o.Output.Write(o.Out, out, out.table)
}

func (l usbListing) table(g *cli.Grid) {
	g.Row("LOCATION", "ID", "CLAIMED AS", "DEVICE")
	covered := map[string]bool{}
	for _, d := range l.Devices {
		as, title := "", d.ProductName
		if d.Claim != nil {
			covered[d.Claim.Device], as = true, displayName(*d.Claim, d.Location)
		}
		if d.Hub {
			title = "hub, not available"
		}
		g.Row(d.Location, d.ID, as, title)
	}
	for _, c := range l.Claims {
		if !covered[c.Device] {
			g.Row(c.Device, "", displayName(c, c.Device), "claimed, not connected")
		}
	}
}

// displayName returns the name under which a device is listed.
func displayName(c usb.Claim, location string) string {
	if c.Name != "" {
		return c.Name
	}
	return location
}

func usbClaim(g *globals) *cobra.Command {
	o := newUSBOptions(g)
	cmd := &cobra.Command{
		Use:   "claim DEVICE",
		Short: "Claim a USB device",
		Long: `claim makes the device at a location, or every device of a vendor and product, available to VMs. Devices
may share a name: a start that requests it gets a free one. Without a name a device is requested by
its location. emulated:tablet, mouse, keyboard and storage are emulated by the hypervisor, for
tests. A repeated claim replaces the earlier one.`,
		Example: `  buildnode usb claim 1-2.3 --name phone
  buildnode usb claim 05ac:12a8 --name phone
  buildnode usb claim emulated:tablet`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Device = args[0]
			return o.claim()
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", "", "claim name of the device (default: its location)")
	return cmd
}

func (o *USBOptions) claim() error {
	claims, err := o.claims()
	if err != nil {
		return err
	}
	devices, err := usb.ReadDevices(o.DevicesDir)
	if err != nil && farm.CodeOf(err) != farm.CodeRefused {
		return err
	}
	for _, d := range devices {
		if d.Hub && d.Location == o.Device {
			return farm.Refused("%s is a hub: claim the devices on it", d.Location)
		}
	}
	c, err := claims.Add(o.Device, o.Name)
	if farm.CodeOf(err) == farm.CodeInvalid {
		return cli.Usage(err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.Out, "claimed %s as %s\n", c.Device, displayName(c, c.Device))
	return err
}

func usbRelease(g *globals) *cobra.Command {
	o := newUSBOptions(g)
	return &cobra.Command{
		Use:   "release DEVICE|NAME",
		Short: "Release a USB device",
		Long:  `release removes a claim, given as it was claimed, or all claims of a name. A VM keeps its device.`,
		Example: `  buildnode usb release 1-2.3
  buildnode usb release phone`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Device = args[0]
			return o.release()
		},
	}
}

func (o *USBOptions) release() error {
	claims, err := o.claims()
	if err != nil {
		return err
	}
	gone, err := claims.Remove(o.Device)
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range gone {
		_, err := fmt.Fprintf(o.Out, "released %s\n", c.Device)
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
