"use strict";
/* On a page of `unbraid explore`, the server that sent the page decodes images. */
(() => {
  const unbraid = (globalThis.unbraid ??= {});
  const token = document.querySelector("script[data-token]").dataset.token;
  unbraid.source = {
    async decode(id, z) {
      const answer = await fetch(`decode?run=${encodeURIComponent(id)}&token=${encodeURIComponent(token)}`, { method: "POST", body: z });
      if (!answer.ok) throw new Error(`The server answered ${answer.status}: ${await answer.text()}`);
      return new Float32Array(await answer.arrayBuffer());
    },
  };
})();
