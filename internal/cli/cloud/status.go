package cloud

import (
	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

// CommandGroup is the ID of the group of client commands, in the program's help.
const CommandGroup = "cloud"

func statusCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "status", Short: "Show controller and registry status", Args: cobra.NoArgs, GroupID: CommandGroup,
		Long:    `status shows the version of the controller, the status of its registry and the alarms.`,
		Example: `  buildyard status -o json | jq -r '.alarms[]?'`,
	}, func(cmd *cobra.Command, _ []string) error {
		got, err := callAPI(cmd.Context(), a.API.Status)
		if err != nil {
			return err
		}
		disk, err := a.API.RegistryDisk(cmd.Context())
		return printOne(&a, got, a.API.Address(), func(g *cli.Grid, st api.ControllerStatus) {
			g.Row("controller", st.Status)
			g.Row("version", st.Version)
			g.Row("license", st.License)
			g.Row("registry", st.RegistryStatus)
			g.Row("registry address", st.RegistryAddress)
			if err == nil {
				g.Row("registry disk", bytesize.Format(disk.Free)+" of "+bytesize.Format(disk.Total)+" free")
			}
			if st.Maintenance != nil {
				g.Row("maintenance", "on "+st.Maintenance.Reason)
			}
			for _, alarm := range st.Alarms {
				g.Row("alarm", alarm)
			}
		})
	})
}
