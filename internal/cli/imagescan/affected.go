package imagescan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan"
	"github.com/buildyard/buildyard/internal/scan/match"
	"github.com/buildyard/buildyard/internal/scan/scanned"
)

const (
	// repeatInterval is the age of a report after which it is sent again though nothing changed: the controller
	// removes those that are not repeated.
	repeatInterval = 7 * 24 * time.Hour
	// senders is the number of concurrent reports.
	senders = 3
	// maxReportText is the length of a name or a version in a report, in bytes.
	maxReportText = 255
)

// controllerOptions select the controller that is sent which vulnerabilities versions have.
type controllerOptions struct {
	controllerURL string

	client *client.Controller // nil: nothing is sent
	identity
}

func (o *controllerOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.controllerURL, "controller", "",
		"URL of the controller that is sent the vulnerabilities of templates; uses the credentials of buildyard")
}

func (o *controllerOptions) check(src scan.Source, onlyPackages bool) error {
	switch {
	case o.controllerURL == "":
		return nil
	case src.Type != scan.Template:
		return errors.New("--controller: only vulnerabilities of a registry_template can be sent")
	case onlyPackages:
		return errors.New("--controller and --show-packages are mutually exclusive")
	}
	return nil
}

// openClient creates the client of the controller. It makes no request.
func (o *controllerOptions) openClient(g *globals) error {
	if o.controllerURL == "" {
		return nil
	}
	co, err := o.clientOptions(g)
	if err != nil {
		return cli.Usage(err)
	}
	if o.client, err = client.NewController(o.controllerURL, co); err != nil {
		return cli.Usage(fmt.Errorf("--controller: %w", err))
	}
	return nil
}

// toFindings converts findings to those of a version, the most severe ones first, as many as the controller takes.
func toFindings(list []match.Finding) []api.FoundVulnerability {
	type place struct{ id, name, version string }
	known := map[place]bool{}
	out := []api.FoundVulnerability{}
	for i := range list {
		f := &list[i]
		v := api.FoundVulnerability{
			ID: f.Vulnerability.ID, Package: reportText(f.Package.Name), Version: reportText(f.Package.Version),
			Severity: cmp.Or(string(f.Vulnerability.Score.Severity), "unknown"),
		}
		if len(f.Fixed) > 0 {
			v.Fixed = reportText(f.Fixed[0])
		}
		at := place{v.ID, v.Package, v.Version}
		if known[at] || !isReportable(v.ID) {
			continue
		}
		known[at] = true
		for _, id := range append(slices.Clip(f.Vulnerability.Related), f.Advisory) {
			if id != v.ID && isReportable(id) && !slices.Contains(v.Aliases, id) && len(v.Aliases) < api.MaxAliases {
				v.Aliases = append(v.Aliases, id)
			}
		}
		out = append(out, v)
	}
	rank := []string{"critical", "high", "medium", "low"}
	slices.SortStableFunc(out, func(a, b api.FoundVulnerability) int {
		return cmp.Compare(uint(slices.Index(rank, a.Severity)), uint(slices.Index(rank, b.Severity)))
	})
	size := 0
	for n, v := range out {
		size += len(v.ID) + len(strings.Join(v.Aliases, ",")) + len(v.Package) + len(v.Version) + len(v.Fixed) + 16
		if n == api.MaxVersionFindings || size > api.MaxVersionFindingText {
			return out[:n]
		}
	}
	return out
}

// isReportable reports whether the controller accepts an ID.
func isReportable(id string) bool {
	return id != "" && len(id) <= api.MaxVulnerabilityBytes &&
		!strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' })
}

// reportText returns a name or version as the controller accepts it.
func reportText(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > maxReportText {
		s = strings.ToValidUTF8(s[:maxReportText], "")
	}
	return s
}

// versionReport is what the controller is sent about a version.
type versionReport struct {
	name string // of the kept version
	api.VersionFindings
}

// sum returns the digest of what is sent.
func (r *versionReport) sum() string {
	raw, _ := json.Marshal(r.Vulnerabilities) // of texts: it does not fail
	sum := sha256.Sum256(append([]byte(r.Tag+"\n"), raw...))
	return hex.EncodeToString(sum[:])
}

// sendAll sends reports, those that changed since they were last sent, or every week, and returns how many it sent.
// kept remembers what was sent; nil: everything is sent.
func (o *controllerOptions) sendAll(ctx context.Context, kept *scanned.Versions, list []versionReport) (int, error) {
	reported := map[string]scanned.Reported{}
	if kept != nil {
		reported = kept.LoadReported(o.controllerURL)
	}
	var mu sync.Mutex // guards failed, reported and sent
	var failed []error
	sent := 0
	work := make(chan versionReport)
	var wg sync.WaitGroup
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	for range senders {
		wg.Go(func() {
			for r := range work {
				err := o.client.PutVersionFindings(sending, r.VersionFindings)
				if client.CodeOf(err) == client.ErrConflict {
					err = nil // a scanner with a newer database sent its own
				}
				mu.Lock()
				if err == nil {
					reported[r.name] = scanned.Reported{Sum: r.sum(), At: time.Now().UTC()}
					sent++
				} else if sending.Err() == nil {
					failed = append(failed, fmt.Errorf("send the vulnerabilities of %s:%s: %w", r.TemplateID, r.Tag,
						o.withAdvice(ctx, err, "--controller")))
				}
				mu.Unlock()
				if fatalCodes[client.CodeOf(err)] {
					cancel()
				}
			}
		})
	}
	for _, r := range list {
		mu.Lock()
		last := reported[r.name]
		mu.Unlock()
		if last.Sum == r.sum() && time.Since(last.At) < repeatInterval {
			continue
		}
		select {
		case work <- r:
		case <-sending.Done():
		}
	}
	close(work)
	wg.Wait()
	if ctx.Err() != nil {
		failed = append(failed, context.Cause(ctx))
	}
	if kept != nil && sent > 0 {
		failed = append(failed, kept.SaveReported(o.controllerURL, reported))
	}
	return sent, errors.Join(failed...)
}

// sendScanned sends the results of scans to the controller.
func (o *controllerOptions) sendScanned(
	ctx context.Context, g *globals, kept *scanned.Versions, found []scanResult,
) error {
	if o.client == nil {
		return nil
	}
	var list []versionReport
	for _, r := range found {
		if r.inventory.ID == "" || r.Coverage.Database == nil {
			continue // a template that could not be opened
		}
		v := keptVersion(r.inventory, "")
		list = append(list, versionReport{v.Name(), api.VersionFindings{
			TemplateID: v.TemplateID, Tag: v.Tag, ContentID: v.ContentID, Database: r.Coverage.Database.Built,
			Vulnerabilities: toFindings(r.unfiltered),
		}})
	}
	sent, err := o.sendAll(ctx, kept, list)
	if err == nil {
		g.printMessage("Vulnerabilities of %s sent to %s", cli.Plural(sent, "version"), o.controllerURL)
	}
	return err
}

// keptVersion returns what is kept of a scanned template.
func keptVersion(inv *scan.Inventory, storage string) *scanned.Version {
	return &scanned.Version{
		TemplateID: inv.ID, Tag: inv.Tag, ContentID: inv.ContentID, Storage: storage, Packages: inv.Packages,
	}
}
