package catalog

import (
	"regexp"
	"strings"

	packageurl "github.com/package-url/packageurl-go"
)

// purlTypes are the types of package URLs. Applications of macOS have none, so that they
// are generic.
var purlTypes = map[PackageType]string{
	Gem: "gem", Python: "pypi", NPM: "npm", Java: "maven", Go: "golang", Rust: "cargo",
	Brew: "brew", MacOSApp: "generic", MacOSPkg: "generic", Pod: "cocoapods", Swift: "swift",
	System: "generic", Runtime: "generic", Deb: "deb", RPM: "rpm", APK: "apk",
}

var pythonSeparators = regexp.MustCompile(`[-_.]+`)

// PythonName returns the normalized spelling of a Python package's name.
func PythonName(name string) string {
	return strings.ToLower(pythonSeparators.ReplaceAllString(name, "-"))
}

// packageURL names a package for other programs, with the type that the purl specification defines.
func packageURL(p Package) string {
	u := packageurl.PackageURL{Type: purlTypes[p.Kind], Name: p.Name, Version: p.Version}
	switch p.Kind {
	case Python:
		u.Name = strings.ReplaceAll(strings.ToLower(p.Name), "_", "-")
	case NPM:
		if scope, name, ok := strings.Cut(p.Name, "/"); ok {
			u.Namespace, u.Name = scope, name
		}
	case Java:
		if group, artifact, ok := strings.Cut(p.Name, ":"); ok {
			u.Namespace, u.Name = group, artifact
		}
	case Go:
		u.Name = strings.ToLower(p.Name)
		if slash := strings.LastIndexByte(u.Name, '/'); slash >= 0 {
			u.Namespace, u.Name = u.Name[:slash], u.Name[slash+1:]
		}
	case Swift: // names of repositories are the same in upper and lower case, those of packages are not
		if slash := strings.LastIndexByte(p.Name, '/'); slash >= 0 {
			u.Namespace, u.Name = p.Name[:slash], p.Name[slash+1:]
		}
	case Gem:
		if version, ok := strings.CutSuffix(p.Version, JRubySuffix); ok {
			u.Version, u.Qualifiers = version, packageurl.QualifiersFromMap(map[string]string{"platform": "java"})
		}
	case MacOSApp, MacOSPkg, System:
		u.Namespace = "macos"
	case Deb, RPM, APK:
		setRelease(&u, p)
	case Rust, Brew, Pod, Runtime:
	}
	return u.ToString()
}

// setRelease adds what package URLs of operating systems have in addition: the distribution is the
// namespace, the epoch of an RPM package is not part of its version, and a source of another name or version
// is "upstream".
func setRelease(u *packageurl.PackageURL, p Package) {
	qualifiers := map[string]string{}
	if p.Arch != "" {
		qualifiers["arch"] = p.Arch
	}
	id, release := p.Release()
	if u.Namespace = id; id != "" {
		qualifiers["distro"] = strings.TrimSuffix(id+"-"+release, "-")
	}
	if epoch, version, ok := strings.Cut(p.Version, ":"); ok && p.Kind == RPM {
		u.Version, qualifiers["epoch"] = version, epoch
	}
	switch {
	case p.Source == "":
	case p.SourceVersion != "" && p.SourceVersion != p.Version:
		qualifiers["upstream"] = p.Source + "@" + p.SourceVersion
	case p.Source != p.Name:
		qualifiers["upstream"] = p.Source
	}
	u.Qualifiers = packageurl.QualifiersFromMap(qualifiers)
}
