// Package cloud has the commands of buildyard that call a running cloud: one for every kind of
// record of its controller.
//
// It is not the services and does not depend on how they work: it uses the API through the public
// client as any other program can.
//
// Invariant: what -o json prints is the body of the API's answer, with nothing added or left out,
// so that scripts written against either are the same.
package cloud

import (
	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

// Commands returns the commands that are about one kind of record.
func Commands(s cli.Streams) []*cobra.Command {
	return []*cobra.Command{
		instanceCommand(s), templateCommand(s), imageCommand(s), groupCommand(s), keyCommand(s), permissionCommand(s),
		usbCommand(s), macCommand(s), vlanCommand(s),
		eventCommand(s), logCommand(s), fileCommand(s), statsCommand(s), statusCommand(s), maintenanceCommand(s), contextCommand(s),
	}
}
