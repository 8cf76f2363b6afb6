package releases

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// ControllerAddress returns the listen address of the controller of this machine, as its settings have it.
// settingsFile is its settings file; empty: it has none.
type ControllerAddress func(settingsFile string) (string, error)

func healthCommand(streams cli.Streams, controller ControllerAddress) *cobra.Command {
	var address, settings string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check whether a service is ready",
		Long: `healthcheck asks the service on this machine whether it is ready, with HTTP or HTTPS, and fails if it is not.
It sends no credentials and does not verify the certificate. Containers, which have no other
programs, use it. The address is read like the controller reads it: from the environment, its settings
file, and the settings that init made in its data directory. One that is a flag of the service must be
given with --address.`,
		Example: `  buildyard healthcheck
  buildyard healthcheck --config /etc/buildyard/controller.env
  buildyard healthcheck --address :8089`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			listen := cmp.Or(address, os.Getenv(config.ListenAddr))
			var err error
			if listen == "" {
				if listen, err = controller(settings); err != nil {
					return cli.Usage(err)
				}
			}
			at, err := localAddress(listen)
			if err != nil {
				return cli.Usage(err)
			}
			if err := checkReady(ctx, at); err != nil {
				return cli.Exit(cli.ExitUnreachable, err)
			}
			_, err = fmt.Fprintln(streams.Out, "ready")
			return err
		},
	}
	cmd.Flags().StringVar(&address, "address", "", "address of the service (default: "+config.ListenAddr+
		" of the controller)")
	cmd.Flags().StringVar(&settings, "config", "", "settings file of the controller")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "limit of the check")
	return cmd
}

// localAddress returns the address at which this machine reaches a service that listens on an address.
func localAddress(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("invalid address %q: want host:port", listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// checkReady asks a service with HTTP, and then with HTTPS if it does not answer that.
func checkReady(ctx context.Context, address string) error {
	client := &http.Client{Transport: &http.Transport{
		//nolint:gosec // a request to this machine without credentials, whose answer only says whether it is ready
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	plain := get(ctx, client, "http://"+address+"/readyz")
	if plain == nil {
		return nil
	}
	encrypted := get(ctx, client, "https://"+address+"/readyz")
	if encrypted == nil {
		return nil
	}
	return fmt.Errorf("the service at %s is not ready: %w; %w", address, plain, encrypted)
}

func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // of this machine
	if err != nil {
		return err
	}
	resp, err := client.Do(req) //nolint:gosec // as above
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s responded %s", url, resp.Status)
	}
	return nil
}
