package cloud

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

func usbCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "usb", Short: "List available USB devices", Args: cobra.NoArgs, GroupID: CommandGroup,
		Long: `usb shows the numbers of free and used USB devices on all nodes, by claim name or location.
"instance start --usb NAME" attaches a free one.`,
		Example: `  buildyard usb
  buildyard instance start debian --usb phone`,
	}, func(cmd *cobra.Command, _ []string) error {
		got, err := callAPI(cmd.Context(), a.API.USB)
		if err != nil {
			return err
		}
		return printOne(&a, got, "", func(g *cli.Grid, m map[string]api.USBCount) {
			g.Row("DEVICE", "AVAILABLE", "BUSY")
			for _, name := range slices.Sorted(maps.Keys(m)) {
				g.Row(name, m[name].Available, m[name].Busy)
			}
		})
	})
}

func vlanCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "vlan", Short: "List available VLAN IDs", Args: cobra.NoArgs, GroupID: CommandGroup,
		Long:    `vlan shows the IDs of the VLANs that every node offers, one per line.`,
		Example: `  buildyard vlan`,
	}, func(cmd *cobra.Command, _ []string) error {
		got, err := callAPI(cmd.Context(), a.API.VLANs)
		if err != nil {
			return err
		}
		return a.printIDs(got)
	})
}

func macCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "mac", GroupID: CommandGroup, Short: "Manage the MAC address pool",
		Long: `mac shows, fills and empties the pool of MAC addresses that the controller assigns to VMs when
SVC_MANAGE_MAC_ADDRESSES is on.`,
		Example: `  buildyard mac list --in-use
  buildyard mac purge --yes && buildyard mac populate`,
	}, macList(s), macChange(s, "populate", "Fill the pool from the range", "populated",
		(*client.Controller).PopulateMACs),
		macChange(s, "purge", "Empty the pool (addresses in use stay)", "purged", (*client.Controller).PurgeMACs))
}

var macView = tableView[api.MACAddress]{
	itemID: func(m api.MACAddress) string { return m.MACAddress },
	columns: []column[api.MACAddress]{
		{title: "ADDRESS", value: func(m api.MACAddress) any { return m.MACAddress }},
		{title: "INSTANCE", value: func(m api.MACAddress) any { return m.InstanceID }},
	},
}

func macList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var used, free, count bool
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List or count managed MAC addresses", Args: cobra.NoArgs,
		Long: `list shows the managed addresses in order, a thousand unless --limit is set; --after starts after an
address. --count prints their number instead.`,
		Example: `  buildyard mac list --in-use
  buildyard mac list --free --count`,
	}, func(cmd *cobra.Command, _ []string) error {
		use := client.AllMACs
		switch {
		case used:
			use = client.UsedMACs
		case free:
			use = client.FreeMACs
		}
		if count {
			got, err := callAPI(cmd.Context(),
				func(ctx context.Context) (int, error) { return a.API.CountMACs(ctx, use) })
			if err != nil {
				return err
			}
			return printOne(&a, got, fmt.Sprint(got.value), func(g *cli.Grid, n int) { g.Row(n) })
		}
		if o.Limit == 0 {
			o.Limit = 1000
		}
		look := func(ctx context.Context) ([]api.MACAddress, error) {
			return a.API.MACAddresses(ctx, use, o.Limit, o.After)
		}
		return showItems(cmd.Context(), &a, &o, macView, look)
	})
	cmd.Flags().BoolVar(&used, "in-use", false, "only addresses in use")
	cmd.Flags().BoolVar(&free, "free", false, "only free addresses")
	cmd.Flags().BoolVar(&count, "count", false, "print the number of addresses")
	cmd.MarkFlagsMutuallyExclusive("in-use", "free")
	o.add(cmd, "limit", "after")
	return cmd
}

func macChange(
	s cli.Streams, name, short, done string, do func(*client.Controller, context.Context) error,
) *cobra.Command {
	a := Command{Streams: s}
	yes := cli.Confirmation(name != "purge") // populate is reversible and needs no confirmation
	cmd := a.Add(&cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		Long:    short + ".",
		Example: "  buildyard mac " + name,
	}, func(cmd *cobra.Command, _ []string) error {
		if err := yes.Ask(cmd.Context(), a.Streams, "Empty the pool of managed MAC addresses?"); err != nil {
			return err
		}
		if err := do(a.API, cmd.Context()); err != nil {
			return err
		}
		return a.printDone("mac addresses", done)
	})
	if !yes {
		yes.Add(cmd)
	}
	return cmd
}
