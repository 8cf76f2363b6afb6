package imagescan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/cloud"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/match"
)

// attachOptions select where results go in addition to the report.
type attachOptions struct {
	registryURL string

	client *client.Registry // nil: results are not attached
	identity
}

// identity is who calls a service.
type identity struct {
	caller    cloud.Caller
	anonymous bool // no credentials are set
}

// clientOptions returns the options of a client with the credentials of buildyard.
func (o *identity) clientOptions(g *globals) (client.Options, error) {
	v, err := config.Load(config.ClientTable, config.Sources{Env: os.LookupEnv, Stdin: g.In})
	if err != nil {
		return client.Options{}, err
	}
	co, as, err := cloud.ClientOptions(v)
	co.UserAgent = "imagescan"
	o.caller, o.anonymous = as, true
	for _, key := range []string{config.RootToken, config.ClientBearer, config.ClientKeyID, config.ClientCert} {
		o.anonymous = o.anonymous && v.String(key) == ""
	}
	return co, err
}

// withAdvice adds advice to the error of a service whose address a flag has.
func (o *identity) withAdvice(ctx context.Context, err error, flag string) error {
	if o.anonymous && errors.Is(err, client.ErrUnauthenticated) {
		return cli.Exit(cli.ExitDenied,
			fmt.Errorf("%w: set credentials of buildyard in the environment: %s, or %s and %s, or %s and %s",
				err, config.RootToken, config.ClientKeyID, config.ClientKeyString, config.ClientCert, config.ClientKey))
	}
	return cloud.WithAdvice(ctx, err, cloud.Target{Flag: flag, Caller: o.caller})
}

func (o *attachOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.registryURL, "attach", "",
		"URL of the registry that stores the results with the template; uses the credentials of buildyard "+
			"(SVC_CLIENT_ROOT_TOKEN, SVC_CLIENT_API_KEY_ID, ...)")
}

func (o *attachOptions) check(src scan.Source, onlyPackages bool) error {
	switch {
	case o.registryURL == "":
		return nil
	case src.Type != scan.Template:
		return errors.New("--attach: only results of a registry_template can be attached")
	case onlyPackages:
		return errors.New("--attach and --show-packages are mutually exclusive")
	}
	return nil
}

// openClient creates the client of the registry, so that invalid settings are reported before the scan.
// It makes no request.
func (o *attachOptions) openClient(g *globals) error {
	if o.registryURL == "" {
		return nil
	}
	co, err := o.clientOptions(g)
	if err != nil {
		return cli.Usage(err)
	}
	if o.client, err = client.NewRegistry(o.registryURL, co); err != nil {
		return cli.Usage(fmt.Errorf("--attach: %w", err))
	}
	return nil
}

// withAdvice adds advice to the error of a registry that rejects results.
func (o *attachOptions) withAdvice(ctx context.Context, err error) error {
	if errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrNoVersion) {
		err = fmt.Errorf("template or tag not found in the registry at %s: %w", o.registryURL, err)
	}
	return o.identity.withAdvice(ctx, err, "--attach")
}

// fatalCodes are the errors that would also occur for every other version.
var fatalCodes = map[client.Code]bool{
	client.ErrUnreachable: true, client.ErrForeign: true, client.ErrUnsupported: true, client.ErrUnauthenticated: true,
}

// attachAll attaches every result to the scanned version. A failure of one version, such as changed
// content, does not affect the results of others.
func (o *attachOptions) attachAll(ctx context.Context, g *globals, found []scanResult) error {
	if o.client == nil {
		return nil
	}
	var failed []error
	for _, r := range found {
		if r.inventory.ID == "" {
			continue // a template that could not be opened
		}
		scan, err := toTemplateScan(r)
		if err == nil {
			err = o.client.PutScan(ctx, r.inventory.ID, client.Version{Tag: r.inventory.Tag}, scan)
		}
		if err == nil {
			g.printMessage("Results attached to %s at %s", r.inventory.Source, o.registryURL)
			continue
		}
		failed = append(failed, fmt.Errorf("attach the results of %s: %w", r.inventory.Source, o.withAdvice(ctx, err)))
		if ctx.Err() != nil || fatalCodes[client.CodeOf(err)] {
			break
		}
	}
	return errors.Join(failed...)
}

// toTemplateScan converts a result to the form of the registry.
func toTemplateScan(r scanResult) (api.TemplateScan, error) {
	raw, err := json.Marshal(r.ToAPI())
	if err != nil {
		return api.TemplateScan{}, err
	}
	out := api.TemplateScan{
		ScanSummary: api.ScanSummary{
			Scanner: "imagescan", Version: obs.FullVersion(), Scanned: time.Now().UTC().Truncate(time.Second),
			Partial: r.Coverage.Partial,
			Counts:  countBySeverity(r.findings, len(r.Packages)),
		},
		ContentID: r.inventory.ContentID, Report: raw,
	}
	if r.Coverage.Database != nil {
		out.Database = r.Coverage.Database.Built
	}
	return out, nil
}

// countBySeverity returns how many findings there are of each severity.
func countBySeverity(findings []match.Finding, packages int) api.ScanCounts {
	by := map[string]int{}
	for _, f := range findings {
		by[string(f.Vulnerability.Score.Severity)]++
	}
	c := api.ScanCounts{
		Critical: by["critical"], High: by["high"], Medium: by["medium"], Low: by["low"],
		Packages: packages,
	}
	c.Unknown = len(findings) - c.Critical - c.High - c.Medium - c.Low
	return c
}
