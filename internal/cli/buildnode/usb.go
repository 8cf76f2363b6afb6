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
		Short: "USB devices that this node offers to VMs",
		Long: `usb claims devices of this host for VMs. A start asks for one by the name of its claim or
by its location, and gets one that is free. A running agent takes up what is claimed and
released by itself; a VM keeps the device that it has. Devices can be claimed on Linux.`,
		Args: cobra.NoArgs, RunE: help,
	}
	cmd.AddCommand(usbList(g), usbClaim(g), usbRelease(g))
	return cmd
}

// USBOptions are the options of the usb commands.
type USBOptions struct {
	*globals
	Tree   string // where the host shows its devices
	Device string
	Name   string
	Output cli.Format
}

func newUSBOptions(g *globals) *USBOptions { return &USBOptions{globals: g, Tree: usb.Tree} }

// claims returns the claims of the node, and creates its data directory.
func (o *USBOptions) claims() (usb.Claims, error) {
	at, err := o.home()
	if err != nil {
		return usb.Claims{}, err
	}
	return usb.At(at.USB()), at.Make()
}

func usbList(g *globals) *cobra.Command {
	o := newUSBOptions(g)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the USB devices of this host and what is claimed",
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
	devices, err := usb.Read(o.Tree)
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
		as, title := "", d.Title
		if d.Claim != nil {
			covered[d.Claim.Device], as = true, shownAs(*d.Claim, d.Location)
		}
		if d.Hub {
			title = "hub, not offered"
		}
		g.Row(d.Location, d.ID, as, title)
	}
	for _, c := range l.Claims {
		if !covered[c.Device] {
			g.Row(c.Device, "", shownAs(c, c.Device), "claimed, not plugged in")
		}
	}
}

// shownAs returns the name under which a device is listed.
func shownAs(c usb.Claim, location string) string {
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
		Long: `claim offers the device at a location, or every device of a vendor and product, to VMs.
Devices may share a name: a start that asks for it gets one that is free. Without a name
a device is asked for by its location. emulated:tablet, mouse, keyboard and storage are
made by the hypervisor, to try things out. A claim of the same is replaced.`,
		Example: `  buildnode usb claim 1-2.3 --name phone
  buildnode usb claim 05ac:12a8 --name phone
  buildnode usb claim emulated:tablet`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			o.Device = args[0]
			return o.claim()
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", "", "what the device is asked for as (default: its location)")
	return cmd
}

func (o *USBOptions) claim() error {
	claims, err := o.claims()
	if err != nil {
		return err
	}
	devices, err := usb.Read(o.Tree)
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
	_, err = fmt.Fprintf(o.Out, "claimed %s as %s\n", c.Device, shownAs(c, c.Device))
	return err
}

func usbRelease(g *globals) *cobra.Command {
	o := newUSBOptions(g)
	return &cobra.Command{
		Use:   "release DEVICE|NAME",
		Short: "Release a USB device",
		Long: `release takes back a claim, given as it was claimed, or all of a name. A VM keeps the
device that it has.`,
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
