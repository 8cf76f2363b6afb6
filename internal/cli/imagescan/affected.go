package imagescan

import (
	"cmp"
	"context"
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

// toFindings converts findings to those of a version, as many as the controller takes, and reports whether there are
// more.
func toFindings(list []match.Finding) (findings []api.FoundVulnerability, truncated bool) {
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
	out = mostUrgent(out)
	size := 0
	for n, v := range out {
		size += len(v.ID) + len(strings.Join(v.Aliases, ",")) + len(v.Package) + len(v.Version) + len(v.Fixed) + 16
		if n == api.MaxVersionFindings || size > api.MaxVersionFindingText {
			return out[:n], true
		}
	}
	return out, false
}

// mostUrgent returns vulnerabilities in the order in which they are sent: of each ID one before more of another,
// those of unknown severity first, since new ones have none yet, then the most severe ones.
func mostUrgent(list []api.FoundVulnerability) []api.FoundVulnerability {
	rank := []string{"unknown", "critical", "high", "medium", "low"}
	slices.SortStableFunc(list, func(a, b api.FoundVulnerability) int {
		return cmp.Compare(slices.Index(rank, a.Severity), slices.Index(rank, b.Severity))
	})
	first, more := make([]api.FoundVulnerability, 0, len(list)), []api.FoundVulnerability{}
	known := map[string]bool{}
	for _, v := range list {
		if known[v.ID] {
			more = append(more, v)
		} else {
			known[v.ID], first = true, append(first, v)
		}
	}
	return append(first, more...)
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

// newReport returns the report about a scanned version.
func newReport(v *scanned.Version, database time.Time, found []match.Finding) versionReport {
	r := versionReport{v.Name(), api.VersionFindings{
		TemplateID: v.TemplateID, Tag: v.Tag, ContentID: v.ContentID, Database: database, Partial: v.Partial,
	}}
	r.Vulnerabilities, r.Truncated = toFindings(found)
	return r
}

// sentReports counts reports.
type sentReports struct {
	sent  int
	newer int // not stored: a scanner with a newer database sent its own

	failed map[string]bool // names of the versions whose reports failed
}

// note describes what was not stored; "" is nothing.
func (n sentReports) note() string {
	if n.newer == 0 {
		return ""
	}
	return fmt.Sprintf("; of %s it has those of a newer database", cli.Plural(n.newer, "version"))
}

// reported returns the last reports that the controller has, by the names of versions.
func (o *controllerOptions) reported(ctx context.Context) (map[string]api.ReportedVersion, error) {
	list, err := o.client.ReportedVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the reported versions: %w", o.withAdvice(ctx, err, "--controller"))
	}
	reported := make(map[string]api.ReportedVersion, len(list))
	for _, r := range list {
		reported[(&scanned.Version{TemplateID: r.TemplateID, ContentID: r.ContentID}).Name()] = r
	}
	return reported, nil
}

// sendAll sends reports, those that differ from what the controller has, or every week.
func (o *controllerOptions) sendAll(ctx context.Context, list []versionReport) (n sentReports, err error) {
	reported, err := o.reported(ctx)
	if err != nil {
		return n, err
	}
	n.failed = map[string]bool{}
	var mu sync.Mutex // guards failed and n
	var failed []error
	work := make(chan versionReport)
	var wg sync.WaitGroup
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	for range senders {
		wg.Go(func() {
			for r := range work {
				err := o.client.PutVersionFindings(sending, r.VersionFindings)
				mu.Lock()
				switch {
				case err == nil:
					n.sent++
				case client.CodeOf(err) == client.ErrConflict:
					n.newer++
				case client.CodeOf(err) == client.ErrNotFound && r.Removed: // of a template that is gone, or hidden
					n.failed[r.name] = true
				case sending.Err() != nil:
					n.failed[r.name] = true
				default:
					n.failed[r.name] = true
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
		if last := reported[r.name]; last.Sum == r.Sum() && time.Since(last.Reported) < repeatInterval {
			continue
		}
		select {
		case work <- r:
		case <-sending.Done():
			mu.Lock()
			n.failed[r.name] = true
			mu.Unlock()
		}
	}
	close(work)
	wg.Wait()
	if ctx.Err() != nil {
		failed = append(failed, context.Cause(ctx))
	}
	return n, errors.Join(failed...)
}

// sendScanned sends the results of scans to the controller.
func (o *controllerOptions) sendScanned(
	ctx context.Context, g *globals, scope *inventoryOptions, found []scanResult,
) error {
	if o.client == nil {
		return nil
	}
	var list []versionReport
	for _, r := range found {
		if r.inventory.ID == "" || r.Coverage.Database == nil {
			continue // a template that could not be opened
		}
		v := scope.versionOf(r.inventory, "")
		next := newReport(v, r.Coverage.Database.Built, r.unfiltered)
		next.Partial = next.Partial || r.Coverage.Partial
		list = slices.DeleteFunc(list, func(r versionReport) bool { return r.name == next.name }) // an older tag of it
		list = append(list, next)
	}
	n, err := o.sendAll(ctx, list)
	if err == nil {
		g.printMessage("Vulnerabilities of %s sent to %s%s", cli.Plural(n.sent, "version"), o.controllerURL, n.note())
	}
	return err
}
