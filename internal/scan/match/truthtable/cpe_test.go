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

	// Those with the target software of their criteria are programs in that language.
	"brew/activemq": {"apache:activemq:maven"}, "brew/dnsmasq": {"dnsmasq:dnsmasq", "thekelleys:dnsmasq"},
	"brew/caddy": {"caddyserver:caddy:go"}, "brew/act": {"nektos:act:go"},
	"brew/asterisk":  {"asterisk:asterisk", "digium:asterisk", "sangoma:asterisk"},
	"brew/tesseract": {"tesseract_project:tesseract"}, "brew/rapidjson": {"tencent:rapidjson"},
	"brew/syft": {"anchore:syft:go"}, "brew/gnu-tar": {"gnu:tar"}, "brew/webp": {"webmproject:libwebp"},
	"brew/nexus":   {"sonatype:nexus_repository_manager"},
	"brew/traefik": {"traefik:traefik:go"}, "brew/vault": {"hashicorp:vault:go"},
	"brew/mitmproxy": {"mitmproxy:mitmproxy:python"}, "brew/uv": {"astral:uv:rust"},
	"brew/thrift": {"apache:thrift"}, "brew/protobuf": {"google:protobuf"},
	"brew/jenkins": {"jenkins:jenkins:maven"}, "brew/jenkins-lts": {"jenkins:jenkins:maven"},
	"brew/openjdk": {"oracle:openjdk"}, "brew/docker": {"docker:docker:go", "mobyproject:moby:go"},
	"brew/apache-spark":     {"apache:spark:maven"},
	"pod/OpenSSL-Universal": {"openssl:openssl"},
	"cask/docker":           {"docker:docker_desktop", "docker:desktop"},
	"cask/docker-desktop":   {"docker:docker_desktop", "docker:desktop"},
	"cask/firefox":          {"mozilla:firefox"}, "cask/firefox@beta": {"mozilla:firefox"},
	"cask/firefox@developer-edition": {"mozilla:firefox"}, "cask/firefox@esr": {"mozilla:firefox_esr"},
	"cask/joplin": {"joplin_project:joplin:node.js"}, "cask/kitty": {"kitty_project:kitty:go"},
	"cask/vlc": {"videolan:vlc_media_player"}, "cask/temurin": {"oracle:openjdk"},
	"brew/helm":          {"helm:helm:go"},
	"brew/hugo":          {"gohugo:hugo:go"},
	"brew/rclone":        {"rclone:rclone:go"},
	"brew/grafana":       {"grafana:grafana:go"},
	"brew/kafka":         {"apache:kafka:maven"},
	"brew/tomcat":        {"apache:tomcat:maven"},
	"brew/solr":          {"apache:solr:maven"},
	"brew/gh":            {"github:cli:go"},
	"brew/deno":          {"deno:deno:rust"},
	"brew/pnpm":          {"pnpm:pnpm:node.js"},
	"brew/valkey":        {"lfprojects:valkey", "valkey-io:valkey"},
	"brew/mailpit":       {"axllent:mailpit:go"},
	"brew/trafficserver": {"apache:traffic_server"}, "brew/sevenzip": {"7-zip:7-zip"},
	"brew/libnghttp2": {"nghttp2:nghttp2"}, "brew/ethereum": {"ethereum:go_ethereum:go"},
	"brew/dwarfutils": {"libdwarf_project:libdwarf"}, "brew/fluid-synth": {"fluidsynth:fluidsynth"},
	"brew/dotnet": {"microsoft:.net"}, "brew/packetbeat": {"elasticsearch:packetbeat"},
	"brew/aws-cdk":    {"amazon:aws_cloud_development_kit:node.js"},
	"brew/opa":        {"openpolicyagent:open_policy_agent:go"},
	"brew/bubblewrap": {"projectatomic:bubblewrap"}, "brew/nebula": {"slack:nebula:go"},
	"brew/virtualenv": {"virtualenv:virtualenv:python"}, "brew/diffoscope": {"reproducible_builds:diffoscope:python"},
	"brew/mysql-client": {"oracle:mysql_client"}, "brew/marked": {"marked_project:marked:node.js"},
	"brew/orc-tools": {"apache:orc"}, "brew/orc": {"gstreamer:orc"},
	"cask/google-chrome": {"google:chrome"},
	"cask/wireshark-app": {"wireshark:wireshark"},
	"cask/virtualbox":    {"oracle:vm_virtualbox"},
	"cask/electron":      {"electronjs:electron:node.js"},
	"cask/nextcloud":     {"nextcloud:desktop"},
	"cask/drawio":        {"diagrams:drawio"},
	"runtime/python":     {"python:python"}, "runtime/node": {"nodejs:node.js"}, "runtime/openjdk": {"oracle:openjdk"},
	"runtime/oracle-jdk": {"oracle:jdk"}, "runtime/php": {"php:php"},
	"runtime/perl": {"perl:perl:perl", "perl:perl"},
}

// productsOf returns the names of a package. A formula or cask with a version in its name has the product without
// that, unless it is a channel. Only extended support releases of Firefox have a second number.
func productsOf(p *catalog.Package) []string {
	kind := string(p.Kind)
	switch {
	case p.Kind == catalog.MacOSApp:
		id := strings.Join(p.BundleIDs, "")
		if id == "org.mozilla.firefox" && firefoxESR.MatchString(p.Version) {
			return []string{"mozilla:firefox_esr"}
		}
		return products[id]
	case strings.Contains(p.Locations[0], "/Caskroom/"):
		kind = "cask"
	}
	if names, ok := products[kind+"/"+p.Name]; ok {
		return names
	}
	name, _, _ := strings.Cut(p.Name, "@")
	return products[kind+"/"+name]
}

var firefoxESR = regexp.MustCompile(`^[0-9]+\.[1-9]`)

// podVersions are those of OpenSSL in versions of its pod, as the podspecs say.
var podVersions = map[string]string{
	"3.1.5004": "3.1.5", "3.3.2000": "3.3.2", "1.1.2301": "1.1.1w", "1.0.2.19": "1.0.2t",
}

var java8Cask = regexp.MustCompile(`^8,([0-9]+),`)

// upstreamVersion returns the version of the product: what follows a comma of a cask is the packager's.
func upstreamVersion(p *catalog.Package) string {
	if v := podVersions[p.Version]; v != "" {
		return v
	}
	if m := java8Cask.FindStringSubmatch(p.Version); m != nil {
		return "8.0." + m[1]
	}
	v, _, _ := strings.Cut(p.Version, ",")
	if p.Kind == catalog.Brew {
		v, _ = splitRevision(v)
	}
	return v
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
	product := f[3] + ":" + f[4]
	isLanguage := slices.Contains(names, product+":"+f[10])
	if version == "" || !isLanguage && !slices.ContainsFunc(names, func(n string) bool {
		return n == product || strings.HasPrefix(n, product+":")
	}) {
		return false
	}
	if !isLanguage && !slices.Contains([]string{"*", "-", "macos", "mac_os_x", "mac_os"}, f[10]) ||
		!slices.Contains([]string{"*", "-", "community"}, f[9]) {
		return false
	}
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
	return (c.StartIn == "" || compareLoose(version, strings.TrimSuffix(c.StartIn, ".x")) >= 0) &&
		(c.StartEx == "" || compareLoose(version, c.StartEx) > 0) &&
		(c.EndIn == "" || compareLoose(version, c.EndIn) <= 0) && (c.EndEx == "" || compareLoose(version, c.EndEx) < 0)
}
