// Uses of the types that openapi-typescript makes. The file is compiled, not run.
import type { components, operations, paths } from "./buildyard";

type Schemas = components["schemas"];
type Envelope<Name extends keyof operations> = operations[Name] extends {
  responses: { 200: { content: { "application/json": infer Body } } };
}
  ? Body
  : never;

// The status decides which fields there are.
export function instanceIDs(response: Envelope<"startInstances">): string[] {
  if (response.status === "FAIL") {
    throw new Error(response.message);
  }
  return response.body;
}

// The body is a list, or with an id one object.
export function states(response: Envelope<"listInstances">): Schemas["InstanceState"][] {
  if (response.status === "FAIL") {
    throw new Error(response.message);
  }
  const body = response.body;
  return Array.isArray(body) ? body.map((item) => item.vm.instance_state) : [body.instance_state];
}

export function newestTags(response: Envelope<"listTemplates">): (string | undefined)[] {
  if (response.status === "FAIL") {
    throw new Error(response.message);
  }
  const body = response.body;
  return Array.isArray(body) ? body.map((template) => template.latest_tag) : body.versions.map((version) => version.tag);
}

export const start: Schemas["StartRequest"] = {
  vmid: "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032",
  count: 2,
  ttl: 3600,
  metadata: { branch: "main", build: 17, nightly: true },
};

export const terminate: paths["/api/v1/vm"]["delete"]["parameters"]["query"] = { id: "2b0bd6ed-2a1f-4bd0-8f4b-7a1f7fd2b0c1" };

export const maintenance: Schemas["MaintenanceRequest"] = { for: "2h", reason: "new disks" };

// @ts-expect-error the template is required
export const nothing: Schemas["StartRequest"] = { count: 2 };

// @ts-expect-error this is not a state
export const unknown: Schemas["InstanceState"] = "Running";

// @ts-expect-error a failure has no body
export type Missing = Extract<Envelope<"startInstances">, { status: "FAIL" }>["body"];
