package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/license"
)

func keys(t testing.TB) (license.TrustedKeys, ed25519.PrivateKey) {
	t.Helper()
	public, secret, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return license.TrustedKeys{public}, secret
}

var sample = api.AgentPackage{
	Version: "1.2.3-abc", OS: "linux", Arch: "arm64", Size: 7,
	SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}

func TestStatements(t *testing.T) {
	trust, secret := keys(t)
	other, _ := keys(t)
	text, err := Sign(secret, sample)
	if err != nil {
		t.Fatal(err)
	}
	want := sample
	want.Name, want.Signed = "buildnode-linux-arm64.tar.gz", text
	if got, err := Verify(append(other, trust...), " "+text+"\n"); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Verify(other, text); !errors.Is(err, ErrSignature) {
		t.Errorf("a foreign key: %v", err)
	}
	if _, err := Verify(nil, text); !errors.Is(err, ErrSignature) ||
		!strings.Contains(err.Error(), "has no trusted key") {
		t.Errorf("without keys: %v", err)
	}
	parts := strings.Split(text, ".")
	payload, _ := statementEncoding.DecodeString(parts[1])
	forged := statementEncoding.EncodeToString([]byte(strings.Replace(string(payload), "1.2.3", "9.2.3", 1)))
	if _, err := Verify(trust, parts[0]+"."+forged+"."+parts[2]); !errors.Is(err, ErrSignature) {
		t.Errorf("a changed version: %v", err)
	}
	for name, text := range map[string]string{
		"empty": "", "two lines": text + "\n" + text, "a license": "BY1." + parts[1] + "." + parts[2],
		"no signature":    parts[0] + "." + parts[1],
		"short signature": parts[0] + "." + parts[1] + ".AAAA", "padding": parts[0] + "." + parts[1] + "=." + parts[2],
		"long": text + strings.Repeat("A", MaxStatementBytes),
	} {
		if _, err := Verify(trust, text); !errors.Is(err, ErrNotAStatement) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLicenseIsNoPackage: the same secret signs both, and neither is accepted as the other.
func TestLicenseIsNoPackage(t *testing.T) {
	trust, secret := keys(t)
	licence, err := license.IssueKey(secret, license.License{Product: license.Node, Tier: farm.TierBasic})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(trust, strings.Replace(licence, "BY1", "BP1", 1)); err == nil {
		t.Error("a licence is a package")
	}
	text, _ := Sign(secret, sample)
	if _, err := trust.Verify(strings.Replace(text, "BP1", "BY1", 1)); err == nil {
		t.Error("a package is a licence")
	}
}

func TestWhatCannotBeSigned(t *testing.T) {
	_, secret := keys(t)
	for name, edit := range map[string]func(*api.AgentPackage){
		"system": func(p *api.AgentPackage) { p.OS = "windows" }, "arch": func(p *api.AgentPackage) { p.Arch = "386" },
		"no version": func(p *api.AgentPackage) { p.Version = "" },
		"a path":     func(p *api.AgentPackage) { p.Version = "../../x" },
		"a dot":      func(p *api.AgentPackage) { p.Version = ".." },
		"an option":  func(p *api.AgentPackage) { p.Version = "-x" },
		"size":       func(p *api.AgentPackage) { p.Size = 0 },
		"too large":  func(p *api.AgentPackage) { p.Size = MaxPackageBytes + 1 },
		"digest":     func(p *api.AgentPackage) { p.SHA256 = "00" },
		"capitals":   func(p *api.AgentPackage) { p.SHA256 = strings.ToUpper(p.SHA256) },
	} {
		p := sample
		edit(&p)
		if text, err := Sign(secret, p); !errors.Is(err, ErrNotAStatement) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	trust, secret := keys(f)
	text, _ := Sign(secret, sample)
	f.Add(text)
	f.Add("BP1.e30.AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		if _, ok := PlatformOf(p.Name); !ok || !ValidVersion(p.Version) || p.Size < 1 || p.Size > MaxPackageBytes ||
			strings.ContainsAny(p.Version, "/\\") {
			t.Errorf("%q gives %+v", text, p)
		}
		if v, err := Verify(trust, text); err == nil && v.SHA256 != sample.SHA256 {
			t.Errorf("%q is believed", text)
		}
	})
}

// place is a directory of packages with keys.
type place struct {
	t      *testing.T
	dir    string
	secret ed25519.PrivateKey
	shelf  *Repository
}

func newPlace(t *testing.T) *place {
	t.Helper()
	trust, secret := keys(t)
	p := &place{t: t, dir: t.TempDir(), secret: secret}
	p.write(KeysFile, "# ours\n"+base64.StdEncoding.EncodeToString(trust[0])+"\n")
	p.shelf = NewRepository(p.dir, slog.New(slog.DiscardHandler))
	return p
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) sign(version string) {
	p.t.Helper()
	if _, err := SignDir(p.secret, p.dir, version, ""); err != nil {
		p.t.Fatal(err)
	}
}

// offers refreshes the repository and checks the offered packages, by version and platform, and the
// problem.
func (p *place) offers(want, trouble string) {
	p.t.Helper()
	p.shelf.Refresh()
	var got []string
	for _, a := range p.shelf.Packages() {
		got = append(got, a.OS+"/"+a.Arch+" "+a.Version)
	}
	if text := strings.Join(got, ", "); text != want {
		p.t.Errorf("offered: %q, want %q", text, want)
	}
	if said := p.shelf.Problem(); !strings.Contains(said, trouble) || (trouble == "") != (said == "") {
		p.t.Errorf("trouble: %q, want %q", said, trouble)
	}
}

// TestRepositoryFollowsItsDirectory: only unchanged signed packages are offered, and a changed one does
// not affect others.
func TestRepositoryFollowsItsDirectory(t *testing.T) {
	p := newPlace(t)
	p.offers("", "")
	if p.shelf.Keys() == "" {
		t.Error("no keys for nodes that join")
	}
	p.write("buildnode-linux-amd64.tar.gz", "linux")
	p.offers("", "buildnode-linux-amd64.tar.gz is not signed")
	p.sign("1.0.0-a")
	p.offers("linux/amd64 1.0.0-a", "")
	<-p.shelf.Changed()
	p.offers("linux/amd64 1.0.0-a", "")
	select {
	case <-p.shelf.Changed():
		t.Error("nothing has changed")
	default:
	}
	p.write("buildnode-darwin-arm64.tar.gz", "mac")
	p.sign("1.1.0-b")
	p.offers("linux/amd64 1.1.0-b, darwin/arm64 1.1.0-b", "")
	p.write("buildnode-linux-amd64.tar.gz", "LINUX!")
	p.offers("darwin/arm64 1.1.0-b", "buildnode-linux-amd64.tar.gz does not match its signature")
	if err := os.Remove(filepath.Join(p.dir, "buildnode-linux-amd64.tar.gz")); err != nil {
		t.Fatal(err)
	}
	p.offers("darwin/arm64 1.1.0-b", "no such file")
	p.write(ManifestFile, "junk\n")
	p.offers("", "line 1 of the manifest")
	p.sign("1.2.0-c")
	p.write(KeysFile, "junk\n")
	p.offers("darwin/arm64 1.2.0-c", KeysFile)
	if p.shelf.Keys() != "" {
		t.Error("broken keys are given to nodes")
	}
}

func TestFilesByName(t *testing.T) {
	p := newPlace(t)
	p.write("buildnode-darwin-amd64.tar.gz", "intel")
	p.sign("1.0.0-a")
	p.offers("darwin/amd64 1.0.0-a", "")
	read := func(name string) string {
		f, digest, err := p.shelf.OpenPackage(name)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = f.Close() }()
		raw := make([]byte, 100)
		n, _ := f.Read(raw)
		return string(raw[:n]) + map[bool]string{true: "", false: " known"}[digest == ""]
	}
	for name, want := range map[string]string{
		"buildnode-darwin-amd64.tar.gz": "intel known", "AnkaAgent.pkg": "intel known",
		"AnkaAgentArm.pkg":             "put it into " + p.dir,
		"buildnode-linux-amd64.tar.gz": "Agent package buildnode-linux-amd64.tar.gz not found",
		"manifest":                     "Agent package not found", "../x": "Agent package not found",
		KeysFile: "Agent package not found",
	} {
		if got := read(name); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	p.write("AnkaAgentArm.pkg", "installer")
	if got := read("AnkaAgentArm.pkg"); got != "installer" {
		t.Errorf("a package of that very name: %q", got)
	}
	p.write("buildnode-darwin-amd64.tar.gz", "another")
	if got := read("AnkaAgent.pkg"); !strings.Contains(got, "sign it again") {
		t.Errorf("a file that was just replaced: %q", got)
	}
}

// TestPackagedVersion: a package that contains its version is signed as that, and as no other one.
func TestPackagedVersion(t *testing.T) {
	_, secret := keys(t)
	for name, tt := range map[string]struct{ content, version, want, problem string }{
		"in the package":  {archive(t, "VERSION", "1.2.0-abc\n"), "", "1.2.0-abc", ""},
		"the same":        {archive(t, "VERSION", "1.2.0-abc"), "1.2.0-abc", "1.2.0-abc", ""},
		"another one":     {archive(t, "VERSION", "1.2.0-abc"), "1.2.0", "", "version 1.2.0-abc, not 1.2.0"},
		"invalid":         {archive(t, "VERSION", "../x"), "", "", `invalid VERSION "../x"`},
		"long":            {archive(t, "VERSION", strings.Repeat("1", 200)), "", "", "invalid VERSION"},
		"none":            {archive(t, "buildnode", "x"), "", "0.9.0-own", ""},
		"none, but given": {archive(t, "buildnode", "x"), "1.0.0-x", "1.0.0-x", ""},
		"no archive":      {"x", "1.0.0-x", "1.0.0-x", ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, Platforms[0].PackageFile()), []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := SignDir(secret, dir, tt.version, "0.9.0-own")
		switch {
		case tt.problem != "":
			if err == nil || !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("%s: %v, want %q", name, err, tt.problem)
			}
		case err != nil || len(list) != 1 || list[0].Version != tt.want:
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}

// archive returns a tar.gz with one file.
func archive(t *testing.T, name, content string) string {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	_, writeErr := io.WriteString(files, content)
	if err := errors.Join(err, writeErr, files.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestEmptyDirectoryIsNotSigned(t *testing.T) {
	_, secret := keys(t)
	if _, err := SignDir(secret, t.TempDir(), "1.0.0-a", ""); err == nil ||
		!strings.Contains(err.Error(), "buildnode-linux-amd64.tar.gz") {
		t.Errorf("%v", err)
	}
}
