package cloud

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

func instanceConsole(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	listen := "127.0.0.1:0"
	cmd := a.Add(&cobra.Command{
		Use: "console INSTANCE", Short: "Proxy an instance's console to a VNC viewer", Args: cobra.ExactArgs(1),
		Long: `console forwards the VNC console of a running instance to this machine, through the controller: the
node need not be reachable. It prints an address for a VNC viewer, accepts one connection, and runs
until the viewer disconnects or the instance ends. The portal shows the same console in a browser.
Other users of this machine could connect before the viewer does, unless the console has a password
(--vnc-password of instance start and restart).`,
		Example: `  buildyard instance console nightly
  buildyard instance console nightly --listen 127.0.0.1:5999`,
		ValidArgsFunction: instances.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := instances.findAll(cmd.Context(), a.API, args)
		if err != nil {
			return err
		}
		return a.proxyConsole(cmd.Context(), ids[0], listen)
	})
	cmd.Flags().StringVar(&listen, "listen", listen, "listen address for the viewer; port 0: any free port")
	return cmd
}

// proxyConsole forwards the console of an instance to the first client that connects.
func (a *Command) proxyConsole(ctx context.Context, id, address string) error {
	if _, err := a.API.ConsoleOf(ctx, id); err != nil {
		return err // before a viewer connects in vain
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for a viewer: %w", err)
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	err = a.Output.Write(a.Out, consoleAddress{"vnc://" + l.Addr().String()},
		func(g *cli.Grid) { g.Row("vnc://" + l.Addr().String()) })
	if err != nil {
		return err
	}
	viewer, err := l.Accept()
	if err != nil {
		return context.Cause(ctx)
	}
	_ = l.Close() // once
	defer viewer.Close()
	screen, err := a.API.OpenConsole(ctx, id)
	if err != nil {
		return err
	}
	defer screen.Close()
	defer context.AfterFunc(ctx, func() { _ = viewer.Close() })()
	go func() {
		_, _ = io.Copy(screen, viewer)
		_ = screen.Close() // the viewer has left
	}()
	_, _ = io.Copy(viewer, screen)
	return nil
}

// consoleAddress is the address of a forwarded console.
type consoleAddress struct {
	Address string `json:"address"`
}
