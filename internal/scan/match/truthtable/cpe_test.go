package truthtable

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// configuration is one of a CVE, in NVD's form.
type configuration struct {
	Operator string
	Negate   bool
	Nodes    []struct {
		Operator string
		Negate   bool
		CPEMatch []criterion
	}
}

type criterion struct {
	Vulnerable bool
	Criteria   string
	StartIn    string `json:"versionStartIncluding"`
	StartEx    string `json:"versionStartExcluding"`
	EndIn      string `json:"versionEndIncluding"`
	EndEx      string `json:"versionEndExcluding"`
}

// parseConfigurations parses a record of the overrides.
func parseConfigurations(file string, data []byte) (id string, out []configuration, err error) {
	var r struct {
		CVE struct{ Configurations []configuration }
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return "", nil, fmt.Errorf("%s: %w", file, err)
	}
	return strings.TrimSuffix(path.Base(file), ".json"), r.CVE.Configurations, nil
}

// products maps packages of the table to their names in NVD: typed from NVD's own records, not from
// the scanner's table.
var products = map[string][]string{
	"brew/curl": {"haxx:curl"}, "brew/ffmpeg": {"ffmpeg:ffmpeg"}, "brew/freetype": {"freetype:freetype"},
	"brew/ghostscript": {"artifex:ghostscript", "ghostscript:ghostscript"}, "brew/glibc": {"gnu:glibc"},
	"brew/imagemagick": {"imagemagick:imagemagick"}, "brew/jq": {"jqlang:jq", "jq_project:jq"},
	"brew/libxml2": {"xmlsoft:libxml2"},
	"brew/neovim":  {"neovim:neovim"}, "brew/node": {"nodejs:node.js"}, "brew/openssh": {"openbsd:openssh"},
	"brew/openssl": {"openssl:openssl"},
	"brew/poppler": {"freedesktop:poppler", "poppler:poppler"}, "brew/postgresql": {"postgresql:postgresql"},
	"brew/sudo": {"sudo_project:sudo"},
	"brew/xz":   {"tukaani:xz"}, "brew/libssh2": {"libssh2:libssh2"}, "brew/sqlite": {"sqlite:sqlite"},
	"brew/vim": {"vim:vim"}, "brew/git": {"git-scm:git"},
	"brew/go": {"golang:go"}, "brew/php": {"php:php"}, "brew/python": {"python:python"},
	"brew/libarchive":   {"libarchive:libarchive"},
	"com.google.Chrome": {"google:chrome"}, "org.mozilla.firefox": {"mozilla:firefox"},
	"org.mozilla.thunderbird": {"mozilla:thunderbird"},
	"com.apple.Safari":        {"apple:safari"}, "com.docker.docker": {"docker:docker_desktop", "docker:desktop"},
	"com.torusknot.SourceTreeNotMAS": {"atlassian:sourcetree"},
	"com.parallels.desktop.console":  {"parallels:parallels_desktop"},
	"org.libreoffice.script":         {"libreoffice:libreoffice"},
	"org.virtualbox.app.VirtualBox":  {"oracle:vm_virtualbox"},
	"org.videolan.vlc":               {"videolan:vlc_media_player"}, "org.wireshark.Wireshark": {"wireshark:wireshark"},
	"org.inkscape.Inkscape": {"inkscape:inkscape"}, "com.jetbrains.pycharm": {"jetbrains:pycharm"},
	"com.jetbrains.intellij": {"jetbrains:intellij_idea"},
	"com.microsoft.edgemac":  {"microsoft:edge_chromium"}, "com.apple.dt.Xcode": {"apple:xcode"},
	"com.nextcloud.desktopclient": {"nextcloud:desktop"}, "com.vmware.fusion": {"vmware:fusion"},
	"com.apple.iCal": {"apple:calendar"}, "com.apple.AddressBook": {"apple:contacts"},
}

// productsOf returns the names of a package. A formula with a major version in its name has the
// product without that.
func productsOf(p *catalog.Package) []string {
	if p.Kind == catalog.MacOSApp {
		return products[strings.Join(p.BundleIDs, "")]
	}
	name, _, _ := strings.Cut(p.Name, "@")
	return products["brew/"+name]
}

var cpeColon = regexp.MustCompile(`([^\\]):`)

var cpeFields = parsed(func(s string) ([]string, bool) {
	s = cpeColon.ReplaceAllString(cpeColon.ReplaceAllString(s, "$1\x00"), "$1\x00")
	f := strings.Split(strings.ReplaceAll(s, `\:`, ":"), "\x00")
	return f, len(f) == 13
})

// fields splits a formatted CPE: cpe, 2.3, part, vendor, product, version, ...
func (c *criterion) fields() []string {
	f, _ := cpeFields(c.Criteria)
	return f
}

// commit matches the name of a commit, which some records have in place of a version.
var commit = regexp.MustCompile(`^[0-9a-f]{40}$`)

// affects reports whether one of the configurations applies to the package, on a Mac, as the
// vulnerable product.
func affects(all []configuration, names []string, version string) bool {
	return slices.ContainsFunc(all, func(c configuration) bool {
		vulnerable, holds := false, c.Operator == "AND"
		for _, n := range c.Nodes {
			node := n.Operator == "AND"
			for _, m := range n.CPEMatch {
				h := m.holds(names, version)
				vulnerable = vulnerable || h && m.Vulnerable && !n.Negate
				if n.Operator == "AND" {
					node = node && h
				} else {
					node = node || h
				}
			}
			node = node != n.Negate
			if c.Operator == "AND" {
				holds = holds && node
			} else {
				holds = holds || node
			}
		}
		return holds != c.Negate && vulnerable
	})
}

func (c *criterion) holds(names []string, version string) bool {
	f := c.fields()
	if len(f) != 13 {
		return false
	}
	if f[2] != "a" { // its platform
		return f[2] == "o" && f[3] == "apple" && slices.Contains([]string{"macos", "mac_os_x", "mac_os"}, f[4]) &&
			(f[5] == "*" || f[5] == "-") && c.StartIn+c.StartEx+c.EndIn+c.EndEx == ""
	}
	if !slices.Contains(names, f[3]+":"+f[4]) || version == "" {
		return false
	}
	if !slices.Contains([]string{"*", "-", "macos", "mac_os_x", "mac_os"}, f[10]) || (f[9] != "*" && f[9] != "-") {
		return false
	}
	version, _ = splitRevision(version)
	if slices.ContainsFunc([]string{c.StartIn, c.StartEx, c.EndIn, c.EndEx}, commit.MatchString) {
		return false
	}
	if f[5] != "*" && f[5] != "-" {
		exact := strings.ReplaceAll(f[5], `\`, "")
		if f[6] != "*" && f[6] != "-" {
			exact += f[6]
		}
		return compareLoose(version, exact) == 0
	}
	return (c.StartIn == "" || compareLoose(version, c.StartIn) >= 0) &&
		(c.StartEx == "" || compareLoose(version, c.StartEx) > 0) &&
		(c.EndIn == "" || compareLoose(version, c.EndIn) <= 0) && (c.EndEx == "" || compareLoose(version, c.EndEx) < 0)
}
