package buildyard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth/certs"
	"github.com/buildyard/buildyard/internal/config"
)

// portTLS holds the server certificate of a port and the authorities of its client certificates.
// The zero value serves no TLS and accepts no client certificate.
type portTLS struct {
	server  *certs.Server
	clients *certs.Clients
}

// portTLSSettings are the TLS settings of a port.
type portTLSSettings struct {
	PortName                 string // name of the port in errors
	Use, Cert, Key, CA, CRLs string
}

// The ports that may serve TLS.
var (
	apiEdge = portTLSSettings{
		"the API", config.UseHTTPS, config.ServerCert, config.ServerKey, config.CACert,
		config.CRL,
	}
	queueEdge = portTLSSettings{
		"the node interface", config.UseQueueTLS, config.QueueServerCert, config.QueueServerKey,
		config.QueueCACert, config.QueueCRL,
	}
)

// checkTLS rejects certificates that no port would use: an operator who sets one expects TLS. uses are
// the settings that enable TLS for a port.
func checkTLS(v *config.Values, uses ...string) error {
	if slices.ContainsFunc(uses, v.Bool) {
		return nil
	}
	for _, key := range []string{config.ServerCert, config.ServerKey} {
		if v.String(key) != "" {
			return fmt.Errorf("%s requires %s=true", key, config.UseHTTPS)
		}
	}
	return nil
}

// openPortTLS reads the files that the settings name. A TLS port without its own certificate uses that
// of the API.
func openPortTLS(keys portTLSSettings, v *config.Values, log *slog.Logger) (*portTLS, error) {
	e := &portTLS{}
	var err error
	if file := v.String(keys.CA); file != "" {
		proxy := certs.Direct
		if v.Bool(config.IngressNginx) && keys == apiEdge {
			proxy = certs.BehindProxy
		}
		if e.clients, err = certs.OpenClients(certs.ClientOptions{
			What: keys.PortName, CA: file, CRLs: v.List(keys.CRLs), Proxy: proxy, Logger: log,
		}); err != nil {
			return nil, fmt.Errorf("%s: %w", keys.CA, err)
		}
	}
	if !v.Bool(keys.Use) {
		return e, nil
	}
	cert, key := v.String(keys.Cert), v.String(keys.Key)
	if cert == "" && key == "" {
		cert, key = v.String(config.ServerCert), v.String(config.ServerKey)
	}
	if cert == "" || key == "" {
		return nil, fmt.Errorf("%s requires %s and %s, the files of a certificate and its private key", keys.Use,
			keys.Cert, keys.Key)
	}
	e.server, err = certs.Open(certs.Options{
		What: keys.PortName, Cert: cert, Key: key, MinVersion: v.String(config.MinTLSVersion), Clients: e.clients,
		Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keys.Use, err)
	}
	return e, nil
}

// run reloads changed files until ctx ends.
func (e *portTLS) run(ctx context.Context) {
	if e == nil {
		return
	}
	var work sync.WaitGroup
	if e.server != nil {
		work.Go(func() { e.server.Run(ctx) })
	}
	if e.clients != nil {
		work.Go(func() { e.clients.Run(ctx) })
	}
	work.Wait()
}

// certificateAlarms returns an alarm for each port whose server certificate is invalid or expires soon.
func (s *ControllerService) certificateAlarms() (list []api.Alarm) {
	type namedPort struct {
		name string
		tls  *portTLS
	}
	ports := []namedPort{{"api", s.apiTLS}}
	if s.nodePort != nil {
		ports = append(ports, namedPort{"node_interface", s.nodePort.portTLS})
	}
	for _, port := range ports {
		if port.tls == nil || port.tls.server == nil {
			continue
		}
		if message := port.tls.server.Alarm(); message != "" {
			list = append(list, api.Alarm{
				Name: api.AlarmCertificate, Subject: port.name, Message: message,
				Action: "Replace the files of certificate and key; they are read again without a restart.",
				Urgent: port.tls.server.Expired(),
			})
		}
	}
	return list
}
