// Package cloud has the client commands of buildyard: one for every kind of record of a controller.
//
// It does not depend on the services: it uses the API through the public client only.
//
// Invariant: -o json prints the unchanged body of the API response.
package cloud

import (
	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

// Commands returns the commands for the kinds of records.
func Commands(s cli.Streams) []*cobra.Command {
	return []*cobra.Command{
		instanceCommand(s), templateCommand(s), imageCommand(s), groupCommand(s), poolCommand(s), keyCommand(s),
		permissionCommand(s), usbCommand(s), macCommand(s), vlanCommand(s),
		eventCommand(s), logCommand(s), fileCommand(s), statsCommand(s), usageCommand(s), statusCommand(s),
		maintenanceCommand(s), searchCommand(s), vulnerabilityCommand(s), contextCommand(s),
	}
}
