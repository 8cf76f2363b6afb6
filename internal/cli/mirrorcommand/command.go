package mirrorcommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/auth/certs"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/clienttls"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/registrymirror"
	"github.com/buildyard/buildyard/internal/rest"
)

// shutdownTimeout is how long open requests may take after a signal.
const shutdownTimeout = 10 * time.Second

// Command returns the command.
func Command(streams cli.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mirror --origin URL",
		Short: "Serve pulls of another site from a local cache",
		Long: `mirror serves the pulls of nodes at another site than the registry. It stores the layers that they
request, so that each crosses the network between the sites once. It checks with the registry whether a node may
download a layer, and has no credentials itself. While the registry cannot be reached, nodes that it permitted a
layer within the last 10 minutes still get it.

Nodes use a mirror with "buildnode run --registry-mirror URL", and the registry when the mirror fails. Pushes go to
the registry.`,
		Example: `  buildyard registry mirror --origin https://registry.example.com:8089 --max-size 500GB
  buildnode run --registry-mirror http://mirror.site-2.example.com:8089`,
		Args: cobra.NoArgs,
	}
	cli.AddFlags(cmd.Flags(), config.MirrorTable)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src := cli.Sources(cmd.Flags())
		src.Vars = os.Environ()
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(streams.Out, config.MirrorTable, src)
		}
		s, err := newServer(src, streams.Err)
		if err != nil {
			return cli.Usage(err)
		}
		return s.run(cmd.Context())
	}
	return cmd
}

// server is a mirror with its ports.
type server struct {
	settings *config.Values
	origin   *url.URL
	log      *slog.Logger
}

func newServer(src config.Sources, logOutput io.Writer) (*server, error) {
	settings, err := config.Load(config.MirrorTable, src)
	if err != nil {
		return nil, err
	}
	address := strings.TrimRight(settings.String(config.MirrorOrigin), "/")
	if address == "" {
		return nil, fmt.Errorf("--origin or %s is required: the URL of the registry", config.MirrorOrigin)
	}
	s := &server{settings: settings}
	if s.origin, err = url.Parse(address); err != nil {
		return nil, err
	}
	s.log, err = obs.Logger(logOutput, settings.String(config.LogLevel), "mirror")
	return s, err
}

// run serves until the context ends.
func (s *server) run(ctx context.Context) (err error) {
	mirror, err := s.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mirror.Close()) }()
	port, err := s.listen(ctx)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	metrics, err := s.listenMetrics(ctx, port, mirror)
	if err != nil {
		return errors.Join(err, port.Close())
	}
	if metrics != nil {
		work.Go(func() { _ = metrics.Run(ctx) })
	}
	certificate, err := s.openCertificate()
	if err != nil {
		return errors.Join(err, port.Close())
	}
	if certificate != nil {
		work.Go(func() { certificate.Run(ctx) })
	}
	s.log.InfoContext(ctx, "mirror started", "address", port.Addr().String(), "registry", s.origin.Redacted(),
		"directory", s.settings.String(config.BasePath), "version", obs.FullVersion())
	return s.serve(ctx, port, certificate, mirror.Handler())
}

func (s *server) open() (*registrymirror.Mirror, error) {
	trust, err := clienttls.Config(clienttls.Options{
		CAFile: s.settings.String(config.TrustedCA), CertFile: s.settings.String(config.ClientCert),
		KeyFile: s.settings.String(config.ClientKey),
	})
	if err != nil {
		return nil, err
	}
	return registrymirror.Open(registrymirror.Options{
		Origin: s.origin, Dir: s.settings.String(config.BasePath), MaxBytes: s.settings.Size(config.MirrorMaxSize),
		Logger: s.log,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, DisableCompression: true,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, ReadBufferSize: 256 << 10,
		},
	})
}

func (s *server) listen(ctx context.Context) (net.Listener, error) {
	var binding net.ListenConfig
	address := s.settings.String(config.ListenAddr)
	port, err := binding.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the mirror cannot listen on %s (%s): %w", address, config.ListenAddr, err)
	}
	return port, nil
}

// hostCheck returns the checks that precede the mirror's own.
func (s *server) hostCheck(l net.Listener, next http.Handler) http.Handler {
	return rest.HostCheck(rest.HostCheckOptions{
		LoopbackOnly: rest.IsLoopback(l), Hosts: s.settings.List(config.AllowedHosts),
		HostsSetting: config.AllowedHosts, Logger: s.log,
	}, next)
}

// listenMetrics returns nil when they are disabled.
func (s *server) listenMetrics(
	ctx context.Context, port net.Listener, mirror *registrymirror.Mirror,
) (*obs.MetricsServer, error) {
	if !s.settings.Bool(config.EnableMetrics) {
		return nil, nil //nolint:nilnil // disabled
	}
	host, _, err := net.SplitHostPort(port.Addr().String())
	if err != nil {
		return nil, err
	}
	return obs.ListenMetrics(ctx, obs.MetricsOptions{
		Addr: net.JoinHostPort(host, strconv.Itoa(s.settings.Int(config.MetricsPort))),
		Path: s.settings.String(config.MetricsPath), WrapHandler: s.hostCheck, Logger: s.log,
		Families: append(obs.ProgramFamilies("mirror", time.Now()), mirror.Families()...),
	})
}

// openCertificate returns nil without HTTPS.
func (s *server) openCertificate() (*certs.Server, error) {
	if !s.settings.Bool(config.UseHTTPS) {
		return nil, nil //nolint:nilnil // plain HTTP
	}
	cert, key := s.settings.String(config.ServerCert), s.settings.String(config.ServerKey)
	if cert == "" || key == "" {
		return nil, fmt.Errorf("%s requires %s and %s, the files of a certificate and its private key",
			config.UseHTTPS, config.ServerCert, config.ServerKey)
	}
	return certs.Open(certs.Options{
		What: "the mirror", Cert: cert, Key: key, MinVersion: s.settings.String(config.MinTLSVersion), Logger: s.log,
	})
}

// serve answers requests until the context ends, and then waits for open ones.
func (s *server) serve(ctx context.Context, port net.Listener, certificate *certs.Server, handler http.Handler) error {
	slow := rest.NewConcurrencyLimit("slow clients", config.MaxSlowClients, s.settings.Int(config.MaxSlowClients))
	base := rest.WithSlowClients(context.WithoutCancel(ctx), slow)
	server := &http.Server{
		Handler: s.hostCheck(port, handler), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return base },
	}
	port = rest.LimitSlowClients(port, slow, true)
	failed := make(chan error, 1)
	go func() {
		if certificate == nil {
			failed <- server.Serve(port)
			return
		}
		server.TLSConfig = certificate.Config()
		failed <- server.ServeTLS(port, "", "")
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}
