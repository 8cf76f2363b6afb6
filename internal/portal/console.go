package portal

import (
	"errors"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) consolePages() []page {
	return []page{
		{pattern: "/instances/{id}/console", templateName: "console", title: "Console", buildView: showConsole},
	}
}

// consoleView is the page on which the screen of an instance is shown. It gets no change
// notifications: the screen comes over a separate connection, which reports its end.
type consoleView struct {
	ID, Name    string
	Address     string // of the WebSocket
	Reason      string // why the screen cannot be shown; "": it can
	CurlCommand string
}

func showConsole(v *visit) (any, error) {
	id := v.request.PathValue("id")
	_, err := v.ConsoleOf(v, id)
	switch {
	case errors.Is(err, client.ErrUnauthenticated):
		return nil, err
	case errors.Is(err, client.ErrNotFound):
		return nil, &client.Error{Code: client.ErrNotFound, Message: "Instance not found"}
	}
	at := format.Path("/api/v1/vm/console", "id", id)
	out := consoleView{
		ID: id, Name: format.ShortID(id), Address: at, Reason: notShownReason(err),
		CurlCommand: curlCommand(v, "GET", at, ""),
	}
	if vm, err := v.Instance(v, id); err == nil { // else the visitor may see screens and no lists
		out.Name = instanceName(api.InstanceItem{InstanceID: id, Name: &vm.Name, ExternalID: &vm.ExternalID})
	}
	v.title = "Console of " + out.Name
	return out, nil
}

// noConsoleReason returns the reason why an instance has no console, "" where it has one.
func noConsoleReason(v *visit, id, state string) string {
	if state != string(farm.Started) {
		return "Only a running instance has a console"
	}
	_, err := v.ConsoleOf(v, id)
	return notShownReason(err)
}
