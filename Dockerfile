FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md ./
COPY kwsniff kwsniff
RUN python -m venv /opt/kwsniff && /opt/kwsniff/bin/pip install --no-cache-dir .

FROM python:3.13-slim
COPY --from=build /opt/kwsniff /opt/kwsniff
ENV PATH=/opt/kwsniff/bin:$PATH
WORKDIR /captures
ENTRYPOINT ["kwsniff"]
CMD ["--help"]
