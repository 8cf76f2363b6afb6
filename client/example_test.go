package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// Start an instance, wait for it, and end it.
func Example() {
	c, err := client.NewController("http://build.example:8090",
		client.Options{Credentials: client.RootToken("the root token")})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	ids, err := c.Start(ctx, client.StartRequest{
		TemplateID: "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032", ExternalID: "job-17", IdempotencyKey: client.NewKey(),
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Terminate(context.WithoutCancel(ctx), ids[0]) }()
	instance, err := c.WaitStarted(ctx, ids[0], func(i api.Instance) { /* show i.InstanceState and i.Progress */ })
	if err != nil {
		panic(err)
	}
	fmt.Println(instance.InstanceState, "on a node at", instance.VMInfo.HostIP)
	// Output: Started on a node at 127.0.0.1
}

// Errors have codes.
func ExampleError() {
	c, err := client.NewController("http://build.example:8090", client.Options{})
	if err != nil {
		panic(err)
	}
	_, err = c.Template(context.Background(), "0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22")
	switch e := (*client.Error)(nil); {
	case errors.Is(err, client.ErrNotFound):
		fmt.Println("there is no such template")
	case errors.As(err, &e):
		fmt.Println(e.Message, "request", e.RequestID)
	}
	// Output: there is no such template
}

// Watch instances for changes. A stream that breaks is resumed.
func ExampleController_Watch() {
	c, err := client.NewController("http://build.example:8090", client.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	ids, err := c.Start(ctx,
		client.StartRequest{TemplateID: "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032", TTL: client.Duration(time.Second)})
	if err != nil {
		panic(err)
	}
	for change, err := range c.WatchInstances(ctx, client.InstanceWatch{}) {
		if err != nil {
			panic(err) // it cannot be resumed
		}
		if change.Type == client.ChangeGone && change.InstanceID == ids[0] {
			fmt.Println("it is gone")
			break
		}
	}
	// Output: it is gone
}

// List failed instances, page by page.
func ExampleController_EachInstance() {
	c, err := client.NewController("http://build.example:8090", client.Options{})
	if err != nil {
		panic(err)
	}
	for item, err := range c.EachInstance(context.Background(), client.ListOptions{Filter: "state:error age>10m"}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(item.InstanceID, item.VM.Message)
	}
	// Output:
}

// Save a running instance as the next version of a template.
func ExampleController_Save() {
	c, err := client.NewController("http://build.example:8090", client.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	const template = "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"
	ids, err := c.Start(ctx, client.StartRequest{TemplateID: template})
	if err != nil {
		panic(err)
	}
	if _, err := c.WaitStarted(ctx, ids[0], nil); err != nil {
		panic(err)
	}
	request, err := c.Save(ctx, client.SaveRequest{InstanceID: ids[0], Tag: "next", TargetID: template})
	if err != nil {
		panic(err)
	}
	saved, err := c.WaitSaved(ctx, request, nil)
	if err != nil {
		panic(err) // a *client.WaitError contains the reason
	}
	fmt.Println(saved.Request.Tag, saved.Status)
	// Output: next done
}

// A program of a CI system uses an API key. The client makes a handshake, and again when the session expires.
func ExampleLoadAPIKey() {
	key, err := client.LoadAPIKey("ci", "ci.key") // as "buildyard key create ci --out ci.key" made it
	if err != nil {
		fmt.Println("there is no such file here")
		return
	}
	c, err := client.NewController("https://build.example", client.Options{Credentials: key})
	if err != nil {
		panic(err)
	}
	_, err = c.Status(context.Background())
	fmt.Println(err)
	// Output: there is no such file here
}

// A job uses the token that its identity provider issued.
func ExampleBearer() {
	c, err := client.NewRegistry("https://registry.example",
		client.Options{Credentials: client.Bearer(os.Getenv("CI_JOB_JWT"))})
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Address())
	// Output: https://registry.example
}

// A certificate belongs to the connection.
func ExampleTLS() {
	_, err := client.NewController("https://build.example", client.Options{
		TLS: client.TLS{CAFile: "authorities.pem", CertFile: "anna.pem", KeyFile: "anna.key"},
	})
	fmt.Println(err != nil) // there are no such files here
	// Output: true
}

// Of requests that are made by other means the client's credentials can be part too.
func ExampleController_Authorize() {
	c, err := client.NewController("http://build.example:8090",
		client.Options{Credentials: client.RootToken("the root token")})
	if err != nil {
		panic(err)
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://moon.example/", nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Authorize(request))
	// Output:
	// not sending the credentials for http://build.example:8090 to another address, http://moon.example/
}
