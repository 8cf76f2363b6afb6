package loadgen

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Profile describes how the plugin of one CI system uses the API: the behavior that loads a
// controller, not the plugin itself.
type Profile struct {
	Name        string
	About       string
	ContentType string        // of its JSON bodies; "": no header is sent
	Newline     bool          // its bodies end with one
	Poll        time.Duration // between two polls of an instance
	Looks       bool          // it continues polling while the instance works
	FindsByList bool          // it lists everything to find the instance of an external ID
	Scripts     bool          // it starts instances with a monitored script
	Labels      bool          // it sets a name and metadata
	LeavesError bool          // it makes no call about an instance that it saw in Error
	Ends        int           // how often it terminates an instance
}

// Profiles are the profiles of the existing plugins.
var Profiles = []Profile{
	{
		Name: "jenkins", About: "named instances, found by listing everything, looked at while they work, ended twice",
		ContentType: "application/json", Poll: 2 * time.Second, Looks: true, FindsByList: true, Labels: true, Ends: 2,
	},
	{
		Name: "teamcity", About: "lists everything instead of asking for one instance, leaves failed ones",
		ContentType: "application/json", Poll: 5 * time.Second, FindsByList: true, LeavesError: true, Ends: 1,
	},
	{
		Name: "gitlab", About: "bodies without a type, quick looks, nothing while the job runs",
		Newline: true, Poll: time.Second, Labels: true, Ends: 1,
	},
	{
		Name: "github", About: "JSON sent as a form, a monitored startup script, looked at while it works",
		ContentType: "application/x-www-form-urlencoded", Poll: 3 * time.Second, Looks: true, Scripts: true, Ends: 1,
	},
	{
		Name: "packer", About: "bodies without a type, a look a second until Started, no call after Error",
		Newline: true, Poll: time.Second, LeavesError: true, Ends: 1,
	},
}

// ProfileNames returns the names of the profiles.
func ProfileNames() []string {
	names := make([]string, len(Profiles))
	for i, p := range Profiles {
		names[i] = p.Name
	}
	return names
}

// FindProfile returns the profile with a name.
func FindProfile(name string) (Profile, error) {
	i := slices.IndexFunc(Profiles, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, fmt.Errorf("unknown profile %q: want one of %s", name, strings.Join(ProfileNames(), ", "))
	}
	return Profiles[i], nil
}
