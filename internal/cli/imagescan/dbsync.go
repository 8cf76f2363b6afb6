package imagescan

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/scan/vulndb/build"
	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
	"github.com/buildyard/buildyard/internal/scan/vulndb/mirror"
)

// syncFlags are the flags of db sync.
type syncFlags struct {
	only       []string
	urls       map[string]string
	nvdKeyFile string
	output     cli.Format
}

func dbSyncCommand(g *globals) *cobra.Command {
	var f syncFlags
	cmd := &cobra.Command{
		Use:   "sync DIRECTORY",
		Short: "Collect advisories from public sources",
		Long: `sync collects advisories from their public sources into a directory, the mirror, for "db build" and
"db publish". It fetches only what has changed, and resumes after an interruption. A source that
fails keeps its files: it is named, and the exit status is 7, or 1 if all sources failed.
Sources: kev, epss, osv (osv/npm and other ecosystems), debian-tracker, rubysec, homebrew,
nvd-overrides, vulnrichment, nvd, nvd-api. nvd has the feed of each year, nvd-api what changed since;
nvd-api and vulnrichment are collected only when named once.`,
		Example: `  imagescan db sync mirror/
  imagescan db sync mirror/ --only nvd-api,kev,epss --nvd-api-key-file nvd.key`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return g.sync(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringSliceVar(&f.only, "only", nil, "names of the sources to collect (default: all)")
	cmd.Flags().StringToStringVar(&f.urls, "source-url", nil,
		"URLs to use instead of those of sources, such as osv=https://example.com/osv/")
	cmd.Flags().StringVar(&f.nvdKeyFile, "nvd-api-key-file", "", "file with the key for NVD's API")
	f.output.AddLong(cmd)
	return cmd
}

// nvdKeyPattern matches keys of NVD's API, which are UUIDs.
var nvdKeyPattern = regexp.MustCompile(`^[0-9A-Za-z-]{8,100}$`)

const maxKeyLine = 4 << 10

func readNVDKey(ctx context.Context, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := input.ReadAll(ctx, path, maxKeyLine)
	if err != nil {
		return "", fmt.Errorf("NVD API key file %s: %w", path, err)
	}
	key := strings.TrimSpace(string(b))
	if !nvdKeyPattern.MatchString(key) {
		return "", fmt.Errorf("NVD API key file %s: want one line with the key", path)
	}
	return key, nil
}

func (g *globals) sync(ctx context.Context, dir string, f syncFlags) error {
	key, err := readNVDKey(ctx, f.nvdKeyFile)
	if err != nil {
		return err
	}
	l := g.newProgressLine()
	defer l.Clear()
	o := mirror.Options{
		Dir: dir, Only: f.only, URLs: f.urls, NVDKey: key,
		Progress: func(p mirror.Progress) {
			switch {
			case p.Done == 0:
				l.Show("%s: %s", p.Source, p.File)
			case p.Total < 0:
				l.Show("%s: %s: %s", p.Source, p.File, bytesize.Format(p.Done))
			default:
				l.Show("%s: %s: %s of %s", p.Source, p.File, bytesize.Format(p.Done), bytesize.Format(p.Total))
			}
		},
	}
	if err := o.Validate(); err != nil {
		return cli.Usage(err)
	}
	results, err := mirror.Sync(ctx, o)
	l.Clear()
	if err != nil {
		return fmt.Errorf("synchronize the mirror: %w", err)
	}
	st := mirrorStatus{Path: dir}
	failed := 0
	for _, r := range results {
		if r.Err != nil {
			failed++
			failure := fmt.Sprintf("%s: failed: %s", r.Source, mirror.FormatError(r.Err))
			_, _ = fmt.Fprintln(g.Err, cli.EscapeName(failure)) // also with -q
		}
		s := toMirrorSource(r.Source, &r.State)
		s.Outcome = string(r.Outcome)
		st.add(s)
	}
	if !g.quiet || f.output != cli.Table {
		if err := f.output.Write(g.Out, st, st.fillTable); err != nil {
			return err
		}
	}
	if failed == 0 {
		return nil
	}
	code := cli.ExitPartly
	if failed == len(results) {
		code = cli.ExitFailed
	}
	return cli.Exit(code, fmt.Errorf("%d of %d sources failed; their former files stay", failed, len(results)))
}

// mirrorStatus is the JSON output of sync, and of status of a mirror.
type mirrorStatus struct {
	Path    string         `json:"path"`
	Changed time.Time      `json:"changed,omitzero"` // when a file last changed
	Size    int64          `json:"size"`             // bytes of all files
	Sources []mirrorSource `json:"sources"`
}

type mirrorSource struct {
	Name    string    `json:"name"`
	Outcome string    `json:"outcome,omitempty"` // of this run
	Checked time.Time `json:"checked,omitzero"`  // last successful check
	Changed time.Time `json:"changed,omitzero"`
	Date    time.Time `json:"date,omitzero"` // of the newest file, as the source states it
	Files   int       `json:"files"`
	Records int       `json:"records"`
	Size    int64     `json:"size"`
	Error   string    `json:"error,omitempty"` // of the last check, if it failed
}

func toMirrorSource(name string, s *mirror.State) mirrorSource {
	out := mirrorSource{
		Name: name, Checked: s.Checked, Changed: s.Changed, Files: len(s.Files), Records: s.Records(), Size: s.Bytes(),
		Error: s.Error,
	}
	for _, f := range s.Files {
		if f.Date.After(out.Date) {
			out.Date = f.Date
		}
	}
	return out
}

func (m *mirrorStatus) add(s mirrorSource) {
	m.Sources = append(m.Sources, s)
	m.Size += s.Size
	if s.Changed.After(m.Changed) {
		m.Changed = s.Changed
	}
}

func (m mirrorStatus) fillTable(t *cli.Grid) {
	t.Row("SOURCE", "STATE", "CHECKED", "DATE", "RECORDS", "SIZE")
	for _, s := range m.Sources {
		state := s.Outcome
		if state == "" {
			state = "ok"
			if s.Error != "" {
				state = string(mirror.Failed)
			}
		}
		t.Row(s.Name, state, formatMirrorTime(s.Checked), formatMirrorTime(s.Date), s.Records, bytesize.Format(s.Size))
	}
}

func formatMirrorTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04")
}

// mirrorStatus reads the status of a mirror.
func (g *globals) mirrorStatus(ctx context.Context, dir string, output cli.Format) error {
	if !mirror.Is(dir) {
		return cli.Exit(cli.ExitNotFound, fmt.Errorf("mirror %s not found; \"imagescan db sync\" makes one", dir))
	}
	m, err := mirror.Load(ctx, dir)
	if err != nil {
		return err
	}
	st := mirrorStatus{Path: dir}
	for _, name := range slices.Sorted(maps.Keys(m.Sources)) {
		st.add(toMirrorSource(name, m.Sources[name]))
	}
	st.Changed = m.Changed
	if err := output.Write(g.Out, st, st.fillTable); err != nil || output != cli.Table {
		return err
	}
	for _, s := range st.Sources {
		if s.Error != "" {
			g.printMessage("%s: failed: %s", s.Name, s.Error)
		}
	}
	return nil
}

// openMirrors replaces the mirrors among the inputs of a build by their files. The database is dated with the last
// change of a mirror, so equal mirrors give equal databases.
func (g *globals) openMirrors(ctx context.Context, o *build.Options) (release func(), err error) {
	var open []*mirror.Snapshot
	release = func() {
		for _, s := range open {
			s.Close()
		}
	}
	var inputs []string
	for _, p := range o.Inputs {
		if !mirror.Is(p) {
			inputs = append(inputs, p)
			continue
		}
		s, err := mirror.Open(ctx, p)
		if err != nil {
			release()
			return nil, err
		}
		open = append(open, s)
		inputs = append(inputs, s.Files...)
		if s.Changed.After(o.Now) {
			o.Now = s.Changed
		}
		if len(s.Stale) > 0 {
			g.printMessage("Mirror %s: the last check of these sources failed, their former advisories are used: %s", p,
				strings.Join(s.Stale, ", "))
		}
	}
	o.Inputs = inputs
	return release, nil
}
